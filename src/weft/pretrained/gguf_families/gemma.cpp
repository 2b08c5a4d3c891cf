// Gemma, from 2 on with local layers and caps.
#include <cmath>

#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_gemma {
namespace {

std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_offset_norms(), gguf_halved_names(c)});
  return rows;
}

void rms_and_embedding_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  if (!f.is_reading()) return;
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
  if (f.from().has_head) throw Error("{}: {} models have no output.weight", f.from().source, f.from().architecture);
}

// By the number of layers llama.cpp tells the largest model, which divides scores otherwise.
void local_fields(GgufFields& f, ModelConfig& c, int64_t layers_of_largest, int64_t every) {
  rms_and_embedding_fields(f, c);
  gguf_window_fields(f, c, 4096, every, true);
  const bool is_largest = c.layers == layers_of_largest && c.heads > 0;
  const float usual = float(1 / std::sqrt(double(is_largest ? c.hidden / c.heads : c.head_dim)));
  if (!f.is_reading() && std::abs(c.score_scale() - usual) > 1e-6f * usual) {
    f.set("attention.scale", double(c.score_scale()));
    f.note(fmt::format("llama.cpp multiplies scores by {} in such a {} model, where this one has {}", usual,
                       f.from().architecture, c.score_scale()));
  }
  if (f.is_reading()) f.number("attention.scale", c.attention_scale, usual);
}

void gemma2_fields(GgufFields& f, ModelConfig& c) {
  local_fields(f, c, 46, 2);
  if (!f.is_reading() && !(c.attention_softcap > 0 && c.logit_softcap > 0))
    f.refuse("attn_logit_softcapping", "it must be above 0");
  f.number("attn_logit_softcapping", c.attention_softcap, 50);
  f.number("final_logit_softcapping", c.logit_softcap, 30);
}

void gemma3_fields(GgufFields& f, ModelConfig& c) {
  local_fields(f, c, 62, 6);
  f.number("rope.freq_base_swa", c.local_rope_theta, 10000);
  f.number("final_logit_softcapping", c.logit_softcap, 0);
}

}  // namespace
}  // namespace gguf_gemma

std::vector<GgufFamily> gguf_gemma_families() {
  using namespace gguf_gemma;

  return {{"gemma", "gemma", rms_and_embedding_fields, names},
          {"gemma2", "gemma2", gemma2_fields, names},
          {"gemma3", "gemma3", gemma3_fields, names}};
}

}  // namespace weft
