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
  StreamRule rule;
  float init_std = 0.02f;
};

class HyperConnection {
 public:
  HyperConnection(const std::string& name, const HyperConnectionConfig& config, const Partition& partition);

  struct Given {
    Var streams, row, gates;  // [T, N H], as they are; [T, H]; [T, N], where it writes
  };
  // x [T, N H]
  Given read(const Var& x);

  void each_param(auto&& visit) {
    projection_.each_param(visit);
    visit(base_), visit(scale_);
  }

 private:
  HyperConnectionConfig config_;
  Linear projection_;  // [2 N, N H], or [N, N H] where it only reads
  Param base_, scale_;
};

inline Var write_streams(const Var& streams, const Var& branch, const Var& gates) {
  return apply(*streams.context, WriteStreamsOp{}, streams, branch, gates);
}
inline Var begin_streams(const Var& x, int64_t streams) { return apply(*x.context, BeginStreamsOp{streams}, x); }

}  // namespace weft
