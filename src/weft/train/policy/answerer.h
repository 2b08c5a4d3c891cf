// Answerer: lets the model that is being trained answer prompts, as it is now.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace weft {

class Trainer;
struct Recipe;

struct Question {
  std::span<const int32_t> prompt;
  int64_t max_tokens = 0;
  double temperature = 1;  // 0: always the most likely token
  uint64_t seed = 0;       // the answer is a function of this, of the prompt and of the model
};

struct GivenAnswer {
  std::vector<int32_t> tokens;  // with the one that ended it
  std::vector<float> logps;  // of these, by the model at temperature 1, as it chose them; the ending one's is unknown
  bool is_cut = false;       // it ended because it was long enough
};

class Answerer {
 public:
  virtual ~Answerer() = default;

  struct Given {
    int64_t first = 0;  // among all questions
    std::vector<GivenAnswer> answers;
  };
  // Collective: all ranks ask the same. Each answer is given to one rank.
  virtual Given answer(std::span<const Question> questions) = 0;
  // How many tokens of answers were made for this rank, and in how many seconds, in the last call.
  struct Speed {
    int64_t tokens = 0;
    double seconds = 0;
  };
  virtual Speed speed() const = 0;
};

struct AnswererOptions {
  std::vector<int32_t> stop_tokens;         // each ends an answer
  const std::atomic<bool>* stop = nullptr;  // set from outside: no more answers are wanted
};
// The trainer and the recipe outlive what is made. Collective.
using MakeAnswerer = std::function<std::unique_ptr<Answerer>(Trainer&, const Recipe&, AnswererOptions)>;

}  // namespace weft
