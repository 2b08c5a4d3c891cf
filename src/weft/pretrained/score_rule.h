// ScoreRule: what the scores of a model mean that scores texts, as its files say.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"

namespace weft {

struct ScoreRule {
  // What makes probabilities of scores: softmax of classes of which a text is one, sigmoid of those of which it may
  // be several or of a single one; nothing where scores are numbers in their own right.
  enum class Activation : uint8_t { softmax, sigmoid, none };
  std::vector<std::string> labels = {};  // one of each score; empty: the model writes texts
  Activation activation = Activation::softmax;
  bool operator==(const ScoreRule&) const = default;
};

// Labels without names of their own, as Hugging Face's library calls them.
ScoreRule default_score_rule(int64_t labels);
// Of scores, in place.
void activate(ScoreRule::Activation activation, std::vector<float>& scores);

// Whether config.json is that of a model that scores texts, by its class of the library; and how many labels it has.
// Throws Error where its labels are not numbered.
bool scores_texts(const JsonView& config);
int64_t num_labels_of(const JsonView& config);
// Its activation is that of problem_type.
ScoreRule read_score_rule(const JsonView& config);
// Of a folder, where sentence-transformers may have written another one.
ScoreRule read_score_rule(const std::string& folder);

// The class that scores texts beside one that writes them: LlamaForCausalLM -> LlamaForSequenceClassification.
std::string score_class_of(std::string_view architecture);
// What config.json says of so many labels without names.
void write_labels(nlohmann::json& config, int64_t labels);

}  // namespace weft
