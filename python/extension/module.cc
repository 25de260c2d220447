// SPDX-License-Identifier: Apache-2.0
// The module slimps._slimps. Python code uses the package around it (python/slimps).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "glog/logging.h"
#include "python/extension/exchange.h"
#include "python/extension/status.h"
#include "python/extension/store.h"
#include "worker/kvstore_options.h"

namespace slimps::python {
namespace {

namespace py = pybind11;
using Spec = wire::OptimizerSpec;
using Schedule = wire::LearningRateSchedule;

void DefineOptions(py::module_& module) {
  py::class_<KVStoreOptions>(module, "Options")
      .def(py::init<>())
      .def(
          "set",
          [](KVStoreOptions& self, const std::string& name, const std::string& value) {
            RaiseIfError(SetOption(name, value, &self));
          },
          py::arg("name"), py::arg("value"))
      .def_readonly("compression", &KVStoreOptions::compression)
      .def_readonly("grad_scale", &KVStoreOptions::grad_scale)
      .def_readonly("wanted_rank", &KVStoreOptions::wanted_rank)
      .def_readonly("fixed_threshold_bytes", &KVStoreOptions::fixed_threshold_bytes)
      .def_readonly("partition_bytes", &KVStoreOptions::partition_bytes)
      .def_property_readonly("timeout_s", [](const KVStoreOptions& self) {
        return absl::ToDoubleSeconds(self.timeout);
      });
}

template <typename Enum>
Enum ParseName(bool (*parse)(google::protobuf::ConstStringParam, Enum*), const std::string& name) {
  Enum value;
  if (!parse(name, &value)) throw py::value_error("unknown name \"" + name + "\"");
  return value;
}

void DefineOptimizer(py::module_& module) {
  py::class_<Schedule>(module, "Schedule")
      .def(py::init<>())
      .def_property(
          "kind", [](const Schedule& self) { return Schedule::Kind_Name(self.kind()); },
          [](Schedule& self, const std::string& name) {
            self.set_kind(ParseName<Schedule::Kind>(&Schedule::Kind_Parse, name));
          })
      .def_property("warmup_rounds", &Schedule::warmup_rounds, &Schedule::set_warmup_rounds)
      .def_property("every", &Schedule::every, &Schedule::set_every)
      .def_property("factor", &Schedule::factor, &Schedule::set_factor)
      .def_property("total_rounds", &Schedule::total_rounds, &Schedule::set_total_rounds)
      .def_property("final_lr", &Schedule::final_lr, &Schedule::set_final_lr)
      .def_property("begin_round", &Schedule::begin_round, &Schedule::set_begin_round)
      .def_property("power", &Schedule::power, &Schedule::set_power);
  py::class_<Spec>(module, "OptimizerSpec")
      .def(py::init<>())
      .def_property(
          "kind", [](const Spec& self) { return Spec::Kind_Name(self.kind()); },
          [](Spec& self, const std::string& name) {
            self.set_kind(ParseName<Spec::Kind>(&Spec::Kind_Parse, name));
          })
      .def_property("learning_rate", &Spec::learning_rate, &Spec::set_learning_rate)
      .def_property("momentum", &Spec::momentum, &Spec::set_momentum)
      .def_property("nesterov", &Spec::nesterov, &Spec::set_nesterov)
      .def_property("weight_decay", &Spec::weight_decay, &Spec::set_weight_decay)
      .def_property("beta1", &Spec::beta1, &Spec::set_beta1)
      .def_property("beta2", &Spec::beta2, &Spec::set_beta2)
      .def_property("epsilon", &Spec::epsilon, &Spec::set_epsilon)
      .def_property("rescale_grad", &Spec::rescale_grad, &Spec::set_rescale_grad)
      .def_property("clip_gradient", &Spec::clip_gradient, &Spec::set_clip_gradient)
      .def_property("average", &Spec::average, &Spec::set_average)
      .def_property(
          "schedule", [](const Spec& self) { return self.schedule(); },
          [](Spec& self, const Schedule& schedule) { *self.mutable_schedule() = schedule; });
}

void DefineStore(py::module_& module) {
  py::class_<Store>(module, "Store")
      .def_static("create", &Store::Create, py::arg("type"), py::arg("options"))
      .def("init", &Store::Init, py::arg("keys"), py::arg("shapes"), py::arg("values"),
           py::arg("halves"), py::arg("layers"))
      .def("push", &Store::Push, py::arg("key"), py::arg("gradients"), py::arg("priority"))
      .def("push_nothing", &Store::PushNothing, py::arg("key"))
      .def("pull", &Store::Pull, py::arg("keys"), py::arg("outs"), py::arg("priority"))
      .def("push_pull", &Store::PushPull, py::arg("keys"), py::arg("gradients"), py::arg("outs"),
           py::arg("priority"))
      .def("set_optimizer", &Store::SetOptimizer, py::arg("spec"))
      .def("push_rows", &Store::PushRows, py::arg("key"), py::arg("rows"), py::arg("values"),
           py::arg("priority"))
      .def("pull_rows", &Store::PullRows, py::arg("key"), py::arg("row_ids"), py::arg("priority"))
      .def("save_optimizer_states", &Store::SaveOptimizerStates)
      .def(
          "load_optimizer_states",
          [](Store& self, const py::bytes& content) { self.LoadOptimizerStates(content); },
          py::arg("content"))
      .def("set_updater", &Store::SetUpdater, py::arg("updater"))
      .def("set_compression", py::overload_cast<const std::string&>(&Store::SetGradientCompression),
           py::arg("codec_spec"))
      .def("set_compression_dictionary",
           py::overload_cast<const std::map<std::string, std::string>&>(
               &Store::SetGradientCompression),
           py::arg("dictionary"))
      .def("pull_then", &Store::PullThen, py::arg("keys"), py::arg("outs"), py::arg("priority"),
           py::arg("done"))
      .def("save_residuals", &Store::SaveResiduals)
      .def(
          "load_residuals",
          [](Store& self, const py::bytes& content) { self.LoadResiduals(content); },
          py::arg("content"))
      .def("all_reduce_sum", &Store::AllReduceSum, py::arg("values"))
      .def("barrier", &Store::Barrier)
      .def("wait", &Store::Wait)
      .def("leave", &Store::Leave)
      .def("close", &Store::Close)
      .def("abort", &Store::Abort, py::arg("why"))
      .def("totals", &Store::Totals)
      .def("decision", &Store::Decision)
      .def(
          "is_capable",
          [](const Store& self, const std::string& capability) {
            return self.store().is_capable(capability);
          },
          py::arg("capability"))
      .def_property_readonly("rank", [](const Store& self) { return self.store().rank(); })
      .def_property_readonly("num_workers",
                             [](const Store& self) { return self.store().num_workers(); });
}

void DefineExchange(py::module_& module) {
  py::class_<ExchangeSettings>(module, "ExchangeSettings")
      .def(py::init<>())
      .def_readwrite("backup_model", &ExchangeSettings::backup_model)
      .def_readwrite("local_lr", &ExchangeSettings::local_lr)
      .def_readwrite("skip_non_finite", &ExchangeSettings::skip_non_finite)
      .def_readwrite("timeout_s", &ExchangeSettings::timeout_s);
  py::class_<Exchange>(module, "Exchange")
      .def(py::init<Store*, const std::vector<std::string>&,
                    const std::vector<std::vector<int64_t>>&, const std::vector<std::string>&,
                    const std::vector<py::object>&, const Spec&, const ExchangeSettings&>(),
           py::arg("store"), py::arg("names"), py::arg("shapes"), py::arg("layers"),
           py::arg("arrays"), py::arg("optimizer"), py::arg("settings"), py::keep_alive<1, 2>())
      .def("begin_step", &Exchange::BeginStep)
      .def("on_gradient", &Exchange::OnGradient, py::arg("index"), py::arg("gradient"))
      .def("end_step", &Exchange::EndStep)
      .def("set_hyper", &Exchange::SetHyper, py::arg("index"), py::arg("learning_rate"),
           py::arg("weight_decay"))
      .def("drain", &Exchange::Drain)
      .def("times", &Exchange::Times);
}

}  // namespace

PYBIND11_MODULE(_slimps, module) {
  module.doc() = "The C++ side of slimps; use the package slimps.";
  // Another user of glog in this process may have initialised it already.
  if (!google::IsGoogleLoggingInitialized()) {
    FLAGS_logtostderr = true;
    google::InitGoogleLogging("slimps");
  }
  module.def(
      "are_apart",
      [](const std::vector<py::object>& arrays) {
        std::vector<HeldArray> held;
        std::vector<std::vector<std::span<const float>>> groups;
        for (const py::object& array : arrays) {
          held.emplace_back(array, HeldArray::Access::kRead);
          groups.push_back({held.back().floats()});
        }
        return AreApart(groups);
      },
      py::arg("arrays"));
  DefineOptions(module);
  DefineOptimizer(module);
  DefineStore(module);
  DefineExchange(module);
}

}  // namespace slimps::python
