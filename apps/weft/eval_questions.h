// eval_questions: what a model's answers to questions are worth.
#pragma once
#include "command.h"
#include "forward_ranks.h"
#include "sampling_flags.h"

namespace weft::app {

struct QuestionOptions {
  std::string file, reward = "number", command, chat_template, answers_file;
  int64_t samples = 1, max_tokens = 1024, running = 64;
  SamplingFlags sampling;

  bool are_asked() const { return !file.empty(); }
  void add_to(CLI::App& command);
};

// Every question is answered `samples` times, on every rank of the model's mesh.
void eval_questions(const ForwardOptions& forward, const QuestionOptions& options, const Output& output);

}  // namespace weft::app
