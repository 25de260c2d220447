// Numbers of the optimizer that a training loop changes as it goes, for groups of parameters and schedules of its own.
#ifndef SLIMPS_WORKER_HYPER_H_
#define SLIMPS_WORKER_HYPER_H_

namespace slimps {

// In place of the optimizer's, its schedule of the learning rate included. Neither negative, both finite in fp32.
struct Hyper {
  double learning_rate = 0;
  double weight_decay = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_HYPER_H_
