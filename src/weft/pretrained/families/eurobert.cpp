// EuroBERT as Hugging Face saves it: Llama whose tokens see all of their text.
#include "weft/pretrained/families/families.h"
#include "weft/pretrained/score_rule.h"

namespace weft {
namespace hf_eurobert {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  if (!f.is_reading()) return;
  c.head_bias = c.mlp_bias;
  if (scores_texts(f.from()))
    f.refuse("architectures", "its head of scores has two layers, which weft does not know");
}

}  // namespace
}  // namespace hf_eurobert

std::vector<HfFamily> hf_eurobert_families() {
  using namespace hf_eurobert;

  return {llama_family("eurobert", "EuroBertForMaskedLM", fields, llama_names)};
}

}  // namespace weft
