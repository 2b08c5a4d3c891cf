// Generator: continues one prompt, a token at a time, with a key/value cache.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/pretrained/forward_model.h"
#include "weft/serve/logit_rows.h"
#include "weft/tensor/repeated_step.h"

namespace weft {

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<int32_t> stop_tokens;  // each ends the text and is not passed on
};

class Generator {
 public:
  // The model outlives the generator. Every rank of its mesh has one and makes the same calls.
  explicit Generator(ForwardModel& model) : model_(model) {}

  // Calls on_token for every new token, on every rank. Stops after max_tokens or at a stop token. When the model's
  // context is full it goes on from the newer half of what it saw. A device computes the next token while on_token is
  // told of one. Returns how many tokens were made. Throws UsageError when the prompt is empty or fills the context.
  int64_t generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<void(int32_t token)> on_token);

 private:
  struct Text {
    KvCache cache;
    Sampler sampler;
    size_t num_prompt;
    std::vector<int32_t> tokens;  // that are known
    size_t num_cached = 0;        // of these, and the unread one behind them
    bool has_unread = false;      // a device chose the next token, which is not read yet
    int64_t num_at_once = 0;      // of the next ones, those that are read before others are computed
    SamplingPast past() const;
  };
  // Runs the tokens that are not in the cache yet, or the unread one: the logits of the last.
  Tensor compute(Text& text);
  // Has the token chosen that comes behind all that is known. True: it may stay unread while the next is computed.
  bool choose(Text& text, const Tensor& logits);
  // What was chosen; nothing where the device could not tell, whose logits are no more.
  std::optional<int32_t> read(Text& text, const Tensor& logits);

  ForwardModel& model_;
  std::vector<int32_t> positions_;
  LogitRows rows_;
  StepTurns turns_;
};

}  // namespace weft
