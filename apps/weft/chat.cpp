// weft chat: a conversation with a model, by the template that it was trained with.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "find_chat_template.h"
#include "forward_ranks.h"
#include "sampling_flags.h"
#include "weft/base/json.h"
#include "weft/serve/generator.h"

namespace weft::app {
namespace {

constexpr size_t kMostLineBytes = size_t(1) << 20;

struct ChatCommand {
  ForwardOptions forward;
  std::string system, template_file;
  GenerateOptions generate;
  SamplingFlags sampling;
  Output output;
};

// What was said so far; on the one rank that reads and writes.
class Conversation {
 public:
  Conversation(const ChatCommand& o, const ModelSource& source)
      : tokenizer_(source.tokenizer()),
        template_(find_chat_template(o.template_file, source, *tokenizer_)),
        system_(o.system) {
    if (!template_)
      throw Error("{} has no chat template: name a file with one with --template, or use weft generate",
                  source.path());
    clear();
  }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) add("system", system_);
  }
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }
  void take_back() { messages_.erase(messages_.end() - 1); }  // what was added last
  // The tokens after which the model answers.
  std::vector<int32_t> prompt() const {
    const std::string text =
        template_->render({.messages = jinja::Value::from_json(messages_), .add_generation_prompt = true});
    return tokenizer_->encode(text, {.parse_special = true});
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::string system_;
  nlohmann::ordered_json messages_;
};

// A line without its end; nothing at the end of the input.
std::optional<std::string> read_line() {
  std::string line;
  int c = std::getchar();
  if (c == EOF) return std::nullopt;
  for (; c != EOF && c != '\n'; c = std::getchar()) {
    if (line.size() == kMostLineBytes)
      throw Error("a line has more than {} bytes: say it in several", kMostLineBytes);
    line += char(c);
  }
  return line;
}

// The next line that says something; nothing at the end. "/clear" begins anew.
std::optional<std::string> hear(Conversation& conversation) {
  const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
  for (;;) {
    if (is_terminal) fmt::print(stderr, "> ");
    const std::optional<std::string> line = read_line();
    if (!line) return std::nullopt;
    if (*line == "/clear")
      conversation.clear();
    else if (line->find_first_not_of(" \t\r") != std::string::npos)
      return line;
  }
}

// Every rank learns what one of them has; the others give nothing.
std::vector<int32_t> share(ForwardModel& model, const std::vector<int32_t>& ids) {
  Communicator& world = model.mesh().world();
  Allocator& memory = model.context().stream.host_memory();
  const Tensor count = memory.empty(DType::i64, {1});
  *count.data<int64_t>() = int64_t(ids.size());
  world.all_reduce(count);
  const Tensor all = memory.empty(DType::i32, {*count.data<int64_t>()});
  std::fill_n(all.data<int32_t>(), all.numel(), 0);
  std::ranges::copy(ids, all.data<int32_t>());
  world.all_reduce(all);
  return {all.data<int32_t>(), all.data<int32_t>() + all.numel()};
}

void answer(const ChatCommand& o, ForwardModel& model, const std::vector<int32_t>& prompt,
            const GenerateOptions& options, Conversation* conversation) {
  std::optional<StreamDecoder> decoder;
  if (conversation) decoder.emplace(conversation->tokenizer());
  std::string text;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (o.output.is_json()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  const int64_t made = Generator(model).generate(prompt, options, [&](int32_t token) {
    if (decoder) emit(decoder->push(token));
  });
  if (!conversation) return;
  emit(decoder->finish());
  if (!o.output.is_json()) fmt::print("\n");
  conversation->add("assistant", text);
  o.output.json({{"answer", text}, {"prompt_tokens", prompt.size()}, {"generated_tokens", made}});
}

// Whether there is no room for an answer. Every rank sees it alike; the one that speaks forgets what was asked.
bool say_if_full(const std::vector<int32_t>& prompt, const ForwardModel& model, Conversation* conversation,
                 const Output& output) {
  const int64_t context = model.config().context;
  if (int64_t(prompt.size()) < context) return false;
  if (!conversation) return true;
  conversation->take_back();
  fmt::print(
      stderr,
      "weft: the conversation is full: with this it has {} tokens, and the model's context is {}: /clear begins "
      "anew\n",
      prompt.size(), context);
  output.json({{"error", "context_full"}, {"prompt_tokens", prompt.size()}, {"context", context}});
  return true;
}

void chat_on_rank(const ChatCommand& o, ForwardModel& model, const ModelSource& source) {
  std::optional<Conversation> conversation;
  if (model.is_driver()) conversation.emplace(o, source);
  GenerateOptions options = o.generate;
  options.sampling = o.sampling.over(source.sampling_defaults());
  options.stop_tokens =
      share(model, conversation ? stop_tokens(source, conversation->tokenizer()) : std::vector<int32_t>{});
  for (;;) {
    std::vector<int32_t> prompt;
    if (conversation) {
      if (const auto line = hear(*conversation)) {
        conversation->add("user", *line);
        prompt = conversation->prompt();
      }
    }
    const Patience patience(model.mesh().world());  // people think for as long as they like
    prompt = share(model, prompt);
    if (prompt.empty()) return;
    Conversation* const heard = conversation ? &*conversation : nullptr;
    if (!say_if_full(prompt, model, heard, o.output)) answer(o, model, prompt, options, heard);
  }
}

void chat(const ChatCommand& o) {
  o.sampling.over({});  // refused before a model is read
  run_forward(o.forward,
              [&](ForwardModel& model, const ModelSource& source, Communicator&) { chat_on_rank(o, model, source); });
}

}  // namespace

void add_chat(CLI::App& program) {
  const auto o = std::make_shared<ChatCommand>();
  o->sampling.temperature = 0.7;
  CLI::App* c =
      program.add_subcommand("chat", "Talk with a model: a line for you, an answer from it; /clear begins anew");
  o->forward.add_to(*c);
  c->add_option("--system", o->system, "What the model is told first");
  c->add_option("--template", o->template_file, "A file with a chat template; else the model's own");
  c->add_option("--max-tokens", o->generate.max_tokens, "How many tokens an answer has at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  o->sampling.add_to(*c, "The same seed makes the same answers");
  o->output.add_option(*c);
  c->footer("Example: weft chat Qwen3-0.6B --system 'You answer in one sentence.'");
  c->callback([o] { chat(*o); });
}

}  // namespace weft::app
