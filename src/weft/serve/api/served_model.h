// ServedModel: an engine with what is needed to talk with it in text.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/pretrained/embedding_rule.h"
#include "weft/pretrained/score_rule.h"
#include "weft/serve/api/fill_in_middle.h"
#include "weft/serve/api/reasoning_families.h"
#include "weft/serve/api/relevance.h"
#include "weft/serve/api/tool_calls.h"
#include "weft/serve/engine.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft::api {

// Compiles what a request demands of its output's form.
struct OutputForm {
  enum class Kind : uint8_t { json_object, json_schema, regex, choice, grammar, tool_calls };
  Kind kind;
  std::string text = {};                  // the schema as JSON, the expression or the grammar
  std::vector<std::string> choices = {};  // of Kind::choice; of Kind::tool_calls the names of the tools
  // Of Kind::tool_calls: a call, or several, of these tools; a schema for each. Behind marker_before(), or with it.
  std::vector<std::string> schemas = {};
  ToolFormat tool_format = ToolFormat::hermes;
  bool is_parallel = false;
  bool has_marker = false;
  // What the model thinks comes first, and is free; the form, or what is said of its trigger, is of what follows.
  ReasoningFormat reasoning_format = ReasoningFormat::none;
  ReasoningPlace reasoning = ReasoningPlace::outside;
  // The form is that of what comes behind this text, if it ever comes; until then the answer is free. Empty: of all.
  std::string trigger = {};
  bool is_whole_answer = false;  // the trigger is the form's beginning, and counts only where the answer begins
  // Of Kind::tool_calls without a trigger: the form of a whole answer that may also be, or begin as, text.
  bool may_be_text = false;
};

class ConstraintFactory {
 public:
  virtual ~ConstraintFactory() = default;
  // Throws UsageError naming what is wrong in the schema, expression or grammar: one too ambiguous to follow, and a
  // form that the vocabulary cannot begin, among it.
  virtual std::unique_ptr<TokenConstraint> make(const OutputForm& form) = 0;
};

// May be used by many threads. What it points to outlives it.
struct ServedModel {
  std::string name;
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: a model that only continues texts
  ToolFormat tool_format = ToolFormat::hermes;
  ReasoningFormat reasoning_format = ReasoningFormat::none;
  std::vector<int32_t> end_tokens;  // each ends an answer
  SamplingDefaults sampling = {};   // where a request says nothing
  EmbeddingRule embedding = {};
  std::shared_ptr<const DenseLayers> dense = {};    // what a text's vector goes through in the end; null: nothing
  std::shared_ptr<const Relevance> relevance = {};  // null: texts are compared by their vectors
  ScoreRule scores = {};                            // of a model that scores texts
  ConstraintFactory* constraints = nullptr;         // null: output of a given form is not offered
  std::string adapter_folder = {};                  // adapters below it may be loaded by name; empty: none may
  std::optional<FillInMiddle> fill_in_middle = {};
};

}  // namespace weft::api
