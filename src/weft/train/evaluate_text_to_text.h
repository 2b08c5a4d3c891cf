// TextToTextEvaluation: the mean loss of a model that reads one text and writes another, over pairs of texts.
#pragma once
#include <span>

#include "weft/data/instruct_example.h"
#include "weft/parallel/mesh.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/train/evaluate.h"

namespace weft {

// What is read and what is to be written.
struct TextToText {
  std::string source, target;
};

// A prompt and its completion, an instruction and its output, or a question and its answer. Throws Error "PLACE:
// what" for a conversation of more.
TextToText text_to_text_of(const InstructExample& example, const std::string& place);

// Every token of a target is predicted from the source and the target's tokens before it, the first from the token
// that the model begins with (teacher forcing). Data-parallel ranks share the pairs; all ranks are told all of them,
// in one order.
class TextToTextEvaluation {
 public:
  // They outlive this.
  TextToTextEvaluation(Context& context, const Mesh& mesh, T5& model)
      : context_(context), mesh_(mesh), model_(model) {}

  // Tokens, with those that end the texts.
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Collective; every rank gets the same result.
  EvalResult finish() const { return mean_over(mesh_.world(), loss_sum_, num_targets_); }

 private:
  Context& context_;
  const Mesh& mesh_;
  T5& model_;
  int64_t num_texts_ = 0;
  double loss_sum_ = 0;      // of this rank's part
  int64_t num_targets_ = 0;  // the same
};

}  // namespace weft
