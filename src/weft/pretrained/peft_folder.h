// PeftFolder: an adapter as PEFT saved it: of which modules, of what ranks and scales each, experts one by one or in
// stacks.
#pragma once
#include <map>

#include "weft/base/json.h"
#include "weft/pretrained/param_names.h"
#include "weft/pretrained/stored_tensors.h"
#include "weft/text/regex.h"

namespace weft {

class PeftFolder {
 public:
  // Throws Error naming the file and the key that says what weft cannot do.
  explicit PeftFolder(const std::string& folder);

  // Beside which projections of such a model it stands; as wide as its widest, scaled as its configuration says of
  // all modules that it says nothing else of. Throws Error naming the module beside which weft has no adapters.
  LoraConfig config(const ModelConfig& base) const;
  // Of the head that scores texts, which it then has whole; 0: it has none.
  int64_t labels() const { return score_ ? score_->dims.front() : 0; }

  // Its tensors, all of the rank and scale of config(), for a model whose parameters are stored as `base` says: under
  // their own names; and where it adapts experts in stacks (PEFT's target_parameters, Transformers' modules from
  // version 5 on), under those of weft's adapters, "layers.0.moe.experts.up.lora_a", [E, r, H]. Throws Error naming
  // the module whose tensors have another shape.
  static std::unique_ptr<StoredTensors> tensors_of(PeftFolder folder, const LoraConfig& lora,
                                                   std::span<const ParamNames> base);

 private:
  struct Module {
    const StoredInfo *a = nullptr, *b = nullptr, *magnitude = nullptr;
    bool is_stack = false;  // of experts: a [E r, I], b [O, r E]
  };
  // A number of those modules whose names end so.
  struct Pattern {
    Regex modules;
    double number;
  };
  class Tensors;
  std::vector<Pattern> patterns_of(const char* key) const;
  double number_of(const std::vector<Pattern>& patterns, const std::string& module, double otherwise) const;
  void find_modules();
  void name_stacks(const std::string& experts);
  bool leaves_layers_out() const;
  int64_t rank_of(const std::string& module) const;
  float scale_of(const std::string& module) const;

  std::string source_;  // of the configuration
  JsonDocument json_;
  std::vector<Pattern> ranks_, alphas_;
  std::unique_ptr<StoredTensors> weights_;
  const StoredInfo* score_ = nullptr;  // [labels, H]
  // By name; of a stack its parameter's, "model.layers.0.mlp.experts.down_proj".
  std::map<std::string, Module> modules_;
};

}  // namespace weft
