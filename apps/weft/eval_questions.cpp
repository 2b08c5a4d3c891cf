// eval_questions: all answers at once, then rewards.
#include "eval_questions.h"

#include <algorithm>

#include "find_chat_template.h"
#include "rank_resources.h"
#include "weft/base/file.h"
#include "weft/base/philox.h"
#include "weft/base/timing.h"
#include "weft/rollout/ask.h"
#include "weft/rollout/round_shape.h"
#include "weft/train/policy/rewards.h"
#include "weft/train/recipe_names.h"

namespace weft::app {
namespace {

PolicyConfig config_of(const QuestionOptions& o) {
  PolicyConfig c = PolicyConfig::of(PolicyMethod::grpo);
  const std::span names = std::span(kRewardNames).first(std::size_t(RewardKind::model));
  const auto name = std::ranges::find(names, o.reward);
  if (name == names.end()) throw UsageError("--reward {}: write one of {}", o.reward, fmt::join(names, ", "));
  c.reward = RewardKind(name - names.begin());
  if ((c.reward == RewardKind::command) == o.command.empty())
    throw UsageError("--reward {}: --reward-command goes with command, and with nothing else", o.reward);
  c.command = {"sh", "-c", o.command};
  c.running = o.running;
  return c;
}

std::vector<Prompt> prompts_of(const QuestionOptions& o, const ModelSource& source, const Tokenizer& tokenizer) {
  const ChatFormat chat(find_chat_template(o.chat_template, source, tokenizer),
                        o.chat_template.empty() ? source.path() : o.chat_template);
  return read_prompts(FileSystem::real(), find_text_files(o.file, "--questions"), chat, tokenizer, "--questions",
                      [](int64_t) {});
}

// Answers in the order of the questions, those to one beside each other.
struct Scored {
  std::vector<GivenAnswer> answers;
  std::vector<ScoredAnswer> texts;
  std::vector<double> rewards;
};

void print(const QuestionOptions& o, const Scored& s, double seconds, const std::string& model,
           const Output& output) {
  const auto count = double(s.rewards.size());
  double reward = 0, best = 0, tokens = 0, cut = 0;
  for (size_t i = 0; i < s.rewards.size(); ++i)
    reward += s.rewards[i] / count, tokens += double(s.answers[i].tokens.size()), cut += s.answers[i].is_cut / count;
  for (size_t i = 0; i < s.rewards.size(); i += size_t(o.samples))
    best += *std::max_element(s.rewards.begin() + int64_t(i), s.rewards.begin() + int64_t(i) + o.samples) *
            double(o.samples) / count;
  output.json({{"reward", reward},
               {"best_reward", best},
               {"questions", s.rewards.size() / size_t(o.samples)},
               {"samples", o.samples},
               {"answer_tokens", tokens / count},
               {"cut", cut},
               {"tokens_per_s", tokens / seconds},
               {"model", model}});
  if (output.is_json()) return;
  const std::string of_several =
      o.samples > 1 ? fmt::format(", the best of {} answers {:.4f}", o.samples, best) : std::string();
  output.text(fmt::format(
      "reward {:.4f} over {} questions{}; {:.1f} tokens an answer, {:.1f}% of them cut, {:.0f} tokens/s", reward,
      s.rewards.size() / size_t(o.samples), of_several, tokens / count, 100 * cut, tokens / seconds));
}

void write_answers(const std::string& path, const Scored& s) {
  std::string lines;
  for (size_t i = 0; i < s.rewards.size(); ++i) {
    const nlohmann::json line{{"example", nlohmann::json::parse(s.texts[i].prompt->example)},
                              {"completion", s.texts[i].text},
                              {"cut", s.texts[i].is_cut},
                              {"reward", s.rewards[i]}};
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  write_file_atomically(FileSystem::real(), path, std::string_view(lines));
}

// As many at once as are asked for, where half of the free memory holds their keys and values, on all ranks alike.
int64_t running_of(int64_t asked, ForwardModel& model, int64_t longest) {
  const MeshShape& mesh = model.mesh().shape();
  const int64_t of_each = longest * cache_bytes_of_token(model.config(), mesh, {model.dtype()}) +
                          most_states_of_each(0, true) * state_bytes_of_sequence(model);
  const int64_t free = available_bytes(model.context().stream.allocator().device(), mesh.size());
  const Tensor running = model.context().stream.host_memory().empty(DType::i64, {1});
  *running.data<int64_t>() = std::clamp<int64_t>(free / 2 / std::max<int64_t>(of_each, 1), 1, asked);
  model.mesh().world().all_reduce(running, Reduction::min);
  return *running.data<int64_t>();
}

void ask_on_rank(const QuestionOptions& o, ForwardModel& model, const ModelSource& source, const Output& output) {
  PolicyConfig config = config_of(o);
  const std::unique_ptr<Tokenizer> tokenizer = source.tokenizer();
  const std::vector<Prompt> prompts = prompts_of(o, source, *tokenizer);
  require_answers(config, prompts, "--questions");
  AskOptions options{.sampling = o.sampling.over(source.sampling_defaults()),
                     .stop_tokens = stop_tokens(source, *tokenizer)};
  // One answer is the likeliest, unless it is asked for otherwise.
  if (o.samples == 1 && !o.sampling.given.temperature) options.sampling.temperature = 0;
  std::vector<Question> questions;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto room = model.config().context - int64_t(prompts[i].ids.size());
    if (room < 1)
      throw UsageError("--questions {}: example {} has {} tokens, and the model's context is {}", o.file, i + 1,
                       prompts[i].ids.size(), model.config().context);
    for (int64_t n = 0; n < o.samples; ++n) {
      const Philox4 bits = philox(o.sampling.seed, uint64_t(int64_t(i) * o.samples + n), name_hash("eval.answer"));
      questions.push_back({.prompt = prompts[i].ids,
                           .max_tokens = std::min(o.max_tokens, room),
                           .temperature = options.sampling.temperature,
                           .seed = uint64_t(bits[0]) << 32 | bits[1]});
    }
  }
  config.running = running_of(o.running, model, longest_of(questions));
  options.engine = round_options(config, int64_t(questions.size()), longest_of(questions));
  const auto begin = std::chrono::steady_clock::now();
  Scored scored{ask(model, questions, options), {}, {}};
  const double seconds = seconds_since(begin);
  if (!model.is_driver()) return;
  for (size_t i = 0; i < scored.answers.size(); ++i)
    scored.texts.push_back(scored_answer(prompts[i / size_t(o.samples)], scored.answers[i], *tokenizer));
  scored.rewards = make_reward(config)->score(scored.texts);
  if (!o.answers_file.empty()) write_answers(o.answers_file, scored);
  print(o, scored, seconds, source.path(), output);
}

}  // namespace

void QuestionOptions::add_to(CLI::App& c) {
  c.add_option(
      "--questions", file,
      "JSON lines {\"question\" or \"prompt\": ..., \"answer\": ...}: the model answers them, and its answers are "
      "scored");
  c.add_option("--reward", reward, "How: number, exact, boxed, contains or command, as rl.reward of recipes")
      ->capture_default_str();
  c.add_option("--reward-command", command, "A program for sh that reads answers and writes numbers, as rl.command");
  c.add_option("--samples", samples, "Answers to each question")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  c.add_option("--max-tokens", max_tokens, "Of an answer at most")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--running", running,
               "Answers that are made at once at most, as far as half of the free memory holds them")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  c.add_option("--chat-template", chat_template, "A Jinja file; else the model's own");
  c.add_option("--answers", answers_file, "A file for all answers and what they are worth, as JSON lines");
  sampling.add_to(c, "The same seed makes the same answers");
}

void eval_questions(const ForwardOptions& forward, const QuestionOptions& options, const Output& output) {
  config_of(options);  // refused before a model is read
  options.sampling.over({});
  run_forward(forward, [&](ForwardModel& model, const ModelSource& source, Communicator&) {
    ask_on_rank(options, model, source, output);
  });
}

}  // namespace weft::app
