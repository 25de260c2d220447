# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's imagenet example does, with a small model:
imagenet_worker.py WAY FOLDER NORM [CHECKPOINT].

WAY is ddp or servers; NORM is 0, the example does not clip. Rank 0 saves after each epoch. From
CHECKPOINT it goes on.
"""

import os
import sys

import slimps.torch
import torch
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 2


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 4),
    )


def main(way, folder, norm, checkpoint=None):
    assert float(norm) == 0
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1)
    made = torch.randn(48, 3, 8, 8)
    data = torch.utils.data.TensorDataset(made, made.mean((1, 2, 3)).argsort().argsort() % 4)
    model = network()
    if way == "ddp":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    begin = 0
    if checkpoint is not None:
        saved = torch.load(checkpoint)
        begin = saved["epoch"]
        model.load_state_dict(saved["state_dict"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
    if way == "servers":
        optimizer = slimps.torch.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=6, sampler=sampler)
    for epoch in range(begin, EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        for number, (images, targets) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print("step %d: loss %.6f" % (10 * epoch + number, loss.item()), flush=True)
        scheduler.step()
        if rank == 0:
            os.makedirs(folder, exist_ok=True)
            saved = {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            }
            name = "checkpoint" if epoch == 0 else "last"
            torch.save(saved, os.path.join(folder, name))
    if way == "servers":
        optimizer.close()
    torch.distributed.destroy_process_group()
    if way == "ddp":
        # The end of DDP's model may hang: it joins gloo's thread, which waits for Python's lock.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
