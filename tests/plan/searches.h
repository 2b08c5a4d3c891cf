// What searches for layouts are asked for.
#pragma once
#include <gtest/gtest.h>

#include "weft/plan/search.h"

namespace weft::plan {

inline ModelConfig llama8b(int64_t context = 8192) {
  ModelConfig m = family_defaults("llama");
  m.layers = 32, m.hidden = 4096, m.heads = 32, m.kv_heads = 8, m.ffn = 14336, m.vocab = 128256;
  m.context = context;
  complete(m);
  return m;
}

inline SearchResult search_for(const ModelConfig& model, const std::string& cluster, int64_t seq_len, int64_t batch) {
  return search(
      {.model = model, .seq_len = seq_len, .global_batch = batch, .cluster = parse_cluster(cluster), .num_full = 6});
}

}  // namespace weft::plan
