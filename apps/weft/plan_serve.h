// weft plan MODEL --for serve: what serving a model takes and gives, on which layout of a cluster.
#pragma once
#include <optional>

#include "command.h"
#include "weft/plan/serve_search.h"

namespace weft::app {

struct ServePlanOptions {
  std::string model;    // a preset, or a model's folder or file
  std::string cluster;  // "8xh100-sxm"
  std::string mesh;     // "": search; else tp, pp, ep, and dp for replicas
  std::string dtype = "bf16";
  std::string target = "latency";
  std::vector<std::string> quantize;  // empty: all, the mildest that fits
  std::string draft;
  std::optional<RowFormat> kv_format;  // none: as dtype
  int64_t input_len = 1024, output_len = 256, tokens_per_step = 2048, max_running = 256, block_tokens = 16;
  int64_t speculate = 4;
  double acceptance = 0.7, ttft_ms = 0, tpot_ms = 0;
  bool has_fp8 = false;  // what if products multiplied in fp8
  int top = 5;
};

void plan_service(const ServePlanOptions& options, const Output& output);

}  // namespace weft::app
