// HyperConnection: how a part of a layer, or the head, reads several residual streams, and by which weights what the
// part gives is written to them (kernels/streams_args.h).
#pragma once
#include <string>

#include "weft/autograd/ops/streams.h"
#include "weft/nn/linear.h"
#include "weft/parallel/partition.h"

namespace weft {

struct HyperConnectionConfig {
  int64_t hidden = 0, streams = 0;
  bool writes = true;  // the head reads alone
  bool mixes = false;  // where it writes
  StreamRule rule;
  float init_std = 0.02f;
};

class HyperConnection {
 public:
  HyperConnection(const std::string& name, const HyperConnectionConfig& config, const Partition& partition);

  struct Given {
    Var streams, row, gates, mix;  // [T, N H], as they are; [T, H]; [T, N], where it writes; [T, N N], where it mixes
  };
  // x [T, N H]
  Given read(const Var& x);

  void each_param(auto&& visit) {
    projection_.each_param(visit);
    visit(base_), visit(scale_);
  }

 private:
  HyperConnectionConfig config_;
  Linear projection_;  // [N, N H], [2 N, N H] where it also writes, [2 N + N N, N H] where it mixes
  Param base_, scale_;
};

// mix: empty where streams are not mixed.
inline Var write_streams(const Var& streams, const Var& branch, const Var& gates, const Var& mix) {
  return apply(*streams.context, WriteStreamsOp{}, streams, branch, gates, mix);
}
inline Var begin_streams(const Var& x, int64_t streams) { return apply(*x.context, BeginStreamsOp{streams}, x); }

}  // namespace weft
