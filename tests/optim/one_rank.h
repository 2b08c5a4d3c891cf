// OneRankParams: parameters of every kind in one bucket of a single rank, with gradients of choice.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "support/rank.h"
#include "weft/comm/single/single.h"
#include "weft/optim/optimizer.h"

namespace weft {

struct OneRankParams {
  OneRankParams() {
    const auto add = [&](const char* name, const Shape& shape) {
      params.push_back(std::make_unique<Param>(name, shape, Init::normal(0.5f)));
    };
    add("embedding.weight", {7, 4});
    add("layers.0.wide.weight", {6, 10});
    add("layers.0.tall.weight", {10, 6});
    add("layers.0.bias", {6});
    add("layers.0.experts.weight", {3, 4, 5});
    add("norm.weight", {6});
    std::vector<Param*> all;
    for (const auto& p : params) all.push_back(p.get());
    bucket = std::make_unique<Bucket>(rank.context, BucketGroups{*alone, *alone, *alone, *alone}, Zero::none,
                                      DType::f32, all, 1);
  }

  std::vector<Owned> owned() const { return {bucket->owned()}; }
  static std::vector<double> numbers(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }
  std::vector<double> weights(const Param& p) const { return numbers(p.value); }
  std::vector<double> gradients(const Param& p) const { return numbers(p.grad); }

  void set_gradients(int step) {
    for (const auto& p : params)
      for (int64_t i = 0; i < p->grad.numel(); ++i)
        p->grad.data<float>()[i] = philox_normal(uint64_t(step), name_hash(p->name), uint64_t(i));
  }

  TestRank rank{cpu_kernels()};
  std::unique_ptr<Communicator> alone = make_single_communicator();
  std::vector<std::unique_ptr<Param>> params;
  std::unique_ptr<Bucket> bucket;
};

}  // namespace weft
