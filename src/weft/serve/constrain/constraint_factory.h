// ConstraintFactory: forms that requests ask for, compiled once and kept while they are in use.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/token_mask.h"

namespace weft::constrain {

struct CompiledForm;  // a grammar and its number

class ConstraintFactory : public api::ConstraintFactory {
 public:
  // vocab: of the model. The tokenizer is used here only.
  ConstraintFactory(const Tokenizer& tokenizer, int64_t vocab, std::vector<int32_t> end_tokens);
  std::unique_ptr<TokenConstraint> make(const api::OutputForm& form) override;

  const TokenMasks& masks() const { return *masks_; }

 private:
  std::shared_ptr<TokenMasks> masks_;
  std::vector<std::pair<std::string, int32_t>> markers_;  // of tool calls, with their tokens
  LruCache<std::shared_ptr<const CompiledForm>> compiled_;
};

// What a form compiles to. Throws UsageError.
Grammar grammar_of(const api::OutputForm& form);

}  // namespace weft::constrain
