// Constraints: masks against every token tried alone, rewinding, and answers of an untrained model that have their
// form.
#include <bit>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "serve/constrained.h"
#include "serve/schema_check.h"
#include "support/rank.h"
#include "support/test_data.h"
#include "weft/comm/single/single.h"
#include "weft/pretrained/model_source.h"
#include "weft/serve/continuous_engine.h"
#include "weft/text/spelling_decoder.h"

namespace weft::constrain {
namespace {

// Tokens that mean what they spell; the last one ends a text, the one before it is a control token.
class ListTokenizer : public Tokenizer {
 public:
  explicit ListTokenizer(std::vector<std::string> tokens, const char* control = "<control>")
      : tokens_(std::move(tokens)) {
    tokens_.push_back(control);
    tokens_.push_back("<end>");
  }
  using Tokenizer::encode;
  std::string_view name() const override { return "list"; }
  int32_t vocab_size() const override { return int32_t(tokens_.size()); }
  std::optional<int32_t> end_of_document() const override { return vocab_size() - 1; }
  void encode(std::string_view, const EncodeOptions&, std::vector<int32_t>&) const override {}
  std::unique_ptr<TokenDecoder> start_decoding(bool) const override {
    return std::make_unique<SpellingDecoder>(*this);
  }
  std::string spelling(int32_t id) const override { return tokens_[size_t(id)]; }
  std::optional<int32_t> find(std::string_view text) const override {
    return text == tokens_[size_t(vocab_size() - 2)] ? std::optional(vocab_size() - 2) : std::nullopt;
  }
  bool is_special(int32_t id) const override { return id >= vocab_size() - 2; }
  size_t cut(std::string_view text) const override { return text.size(); }
  std::string to_json() const override { return "{}"; }

 private:
  std::vector<std::string> tokens_;
};

// Every byte, so that there is always a way on, and pieces of JSON that cross its borders.
std::vector<std::string> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, char(byte));
  for (const char* piece :
       {"{\"", "\": ", "\"}", "\", \"",   "true",     "false",    "null",      "12",         "-1",    "0.",     "[[",
        "]}",  "],",   "{}",  "\xC3\xA9", "\xE2\x82", "\x82\xAC", "\xF0\x9F",  "\x98\x80\"", "\\u00", "\\\"",   "ab",
        "abc", "a",    "\n ", "  ",       "",         "name",     "\"name\":", "e",          "red",   "green\""})
    tokens.emplace_back(piece);
  return tokens;
}

const ListTokenizer kTokens(small_vocabulary());
const int32_t kEnd = *kTokens.end_of_document();

std::vector<uint32_t> filled(TokenConstraint& constraint, int64_t vocab = kTokens.vocab_size()) {
  std::vector<uint32_t> mask(size_t(vocab + 31) / 32, 0xFFFFFFFF);
  constraint.fill(mask);
  return mask;
}
bool is_allowed(const std::vector<uint32_t>& mask, int32_t token) {
  return mask[size_t(token) / 32] >> (token % 32) & 1;
}

std::vector<Form> forms() {
  std::vector<Form> all;
  all.push_back({.kind = FormKind::json_object, .text = {}, .choices = {}});
  all.push_back({.kind = FormKind::json_schema,
                 .text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},
      "n":{"type":"array","items":{"type":"number"}},"c":{"enum":["red","green"]}},"required":["name"]})",
                 .choices = {}});
  all.push_back({.kind = FormKind::regex, .text = "(?:[^a]|ab+){3,8}\xE2\x82\xAC?", .choices = {}});
  all.push_back({.kind = FormKind::grammar,
                 .text = "root ::= \"[\" (root | [0-9]+ | \"red\" | \"green\") \"]\"",
                 .choices = {}});
  all.push_back(
      {.kind = FormKind::choice, .text = {}, .choices = {"ab", "abc", "abcred", "\xF0\x9F\x98\x80\"", "12"}});
  return all;
}

TEST(TokenMaskTest, IsWhatEveryTokenTriedAloneGives) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size() + 9, {kEnd});
  const int64_t vocab = kTokens.vocab_size() + 9;
  std::mt19937 random(3);
  for (const Form& form : forms()) {
    const Grammar grammar = grammar_of(form);
    for (int round = 0; round < 6; ++round) {
      const auto constraint = factory.make(form);
      Matcher matcher(grammar);
      Matcher::State state = matcher.start(), next, after;
      for (int step = 0; step < 40; ++step) {
        const std::vector<uint32_t> mask = filled(*constraint, vocab);
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocab; ++token) {
          bool want = false;
          if (token < kTokens.vocab_size() && !kTokens.is_special(token)) {
            after = state;
            want = !kTokens.spelling(token).empty();
            for (const char c : kTokens.spelling(token)) {
              want = want && matcher.step(after, uint8_t(c), next);
              after = next;
            }
          } else if (token == kEnd) {
            want = Matcher::may_end(state);
          }
          ASSERT_EQ(is_allowed(mask, token), want) << form.text << " token " << token << " at step " << step;
          if (want) allowed.push_back(token);
        }
        ASSERT_FALSE(allowed.empty());
        const int32_t token = allowed[random() % allowed.size()];
        constraint->accept(token);
        if (token == kEnd) break;
        for (const char c : kTokens.spelling(token)) {
          ASSERT_TRUE(matcher.step(state, uint8_t(c), next));
          std::swap(state, next);
        }
      }
    }
  }
}

TEST(ConstraintTest, RewindForgetsTheLastTokens) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  std::mt19937 random(5);
  for (const Form& form : forms()) {
    const auto constraint = factory.make(form);
    std::vector<std::vector<uint32_t>> masks{filled(*constraint)};
    for (int step = 0; step < 60; ++step) {
      if (random() % 3 == 0 && masks.size() > 1) {
        const size_t n = random() % masks.size();
        constraint->rewind(int64_t(n));
        masks.resize(masks.size() - n);
        ASSERT_EQ(filled(*constraint), masks.back());
        continue;
      }
      std::vector<int32_t> allowed;
      for (int32_t token = 0; token < kTokens.vocab_size(); ++token) {
        if (is_allowed(masks.back(), token)) allowed.push_back(token);
      }
      constraint->accept(allowed[random() % allowed.size()]);
      masks.push_back(filled(*constraint));
    }
    EXPECT_THROW(constraint->rewind(int64_t(masks.size())), Error);
  }
}

// Against the text that came: what is behind the first trigger has the form, byte by byte.
TEST(ConstraintTest, IsFreeUntilItsTrigger) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  const Form form{.kind = FormKind::regex, .text = "[abc]{0,9}red", .choices = {}};
  Form triggered = form;
  triggered.trigger = "aab";
  const std::vector<uint32_t> all(filled(*factory.make(form)).size(), 0xFFFFFFFF);
  const auto expected = [&](const std::string& text) {
    const size_t at = text.find(triggered.trigger);
    if (at == std::string::npos) return all;
    const auto inner = factory.make(form);
    for (const char byte : text.substr(at + triggered.trigger.size())) inner->accept(uint8_t(byte));
    return filled(*inner);
  };
  std::vector<int32_t> tokens;  // "ab", "abc", "a" and the bytes a, b
  for (int32_t id = 0; id < kTokens.vocab_size(); ++id)
    for (const char* piece : {"a", "b", "ab", "abc"})
      if (kTokens.spelling(id) == piece) tokens.push_back(id);
  std::mt19937 random(9);
  int num_triggered = 0;
  for (int round = 0; round < 30; ++round) {
    const auto constraint = factory.make(triggered);
    std::vector<std::string> texts{""};
    for (int step = 0; step < 40; ++step) {
      const std::vector<uint32_t> mask = filled(*constraint);
      ASSERT_EQ(mask, expected(texts.back())) << texts.back();
      num_triggered += mask != all;
      const int32_t token = tokens[random() % tokens.size()];
      if (random() % 3 == 0 || !is_allowed(mask, token)) {
        const size_t n = random() % texts.size();
        constraint->rewind(int64_t(n));
        texts.resize(texts.size() - n);
      } else {
        constraint->accept(token);
        texts.push_back(texts.back() + kTokens.spelling(token));
      }
    }
  }
  EXPECT_GT(num_triggered, 100);
}

TEST(ConstraintTest, StaysFreeWhereATokenGoesOnOtherwise) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  Form form{.kind = FormKind::choice, .text = {}, .choices = {"12"}};
  form.trigger = "ab";
  const auto constraint = factory.make(form);
  const auto accept = [&](std::string_view text) {
    for (int32_t id = 256; id < kTokens.vocab_size(); ++id)
      if (kTokens.spelling(id) == text) return constraint->accept(id);
  };
  accept("abc");
  EXPECT_TRUE(is_allowed(filled(*constraint), '3'));
  accept("ab");
  EXPECT_FALSE(is_allowed(filled(*constraint), '3'));
  EXPECT_TRUE(is_allowed(filled(*constraint), '1'));
}

TEST(ConstraintTest, CallsThatMistralBeginsHaveTheirForm) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  Form form{.kind = FormKind::tool_calls, .text = {}, .choices = {"sum"}};
  form.schemas = {R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})"};
  form.tool_format = api::ToolFormat::mistral;
  form.trigger = api::call_trigger(form.tool_format);
  EXPECT_EQ(form.trigger, "[TOOL_CALLS]");
  for (const std::string space : {"", " "}) {
    const auto constraint = factory.make(form);
    const auto accept = [&](std::string_view text) {
      for (const char byte : text) {
        ASSERT_TRUE(is_allowed(filled(*constraint), uint8_t(byte))) << byte << " of " << text;
        constraint->accept(uint8_t(byte));
      }
    };
    accept("Let me see. {\"name\": 1} [TOOL_CALLS]");
    EXPECT_FALSE(is_allowed(filled(*constraint), '{'));  // a list
    accept(space + "[{\"name\": \"");
    EXPECT_FALSE(is_allowed(filled(*constraint), 't'));
    accept("sum\", \"arguments\": {\"x\": 12}}]");
    EXPECT_TRUE(is_allowed(filled(*constraint), kEnd));
    EXPECT_FALSE(is_allowed(filled(*constraint), ' '));
  }
}

Form llama_calls() {
  Form form{.kind = FormKind::tool_calls, .text = {}, .choices = {"sum"}};
  form.schemas = {R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})"};
  form.tool_format = api::ToolFormat::llama;
  form.trigger = api::call_trigger(form.tool_format);
  form.is_whole_answer = api::tool_family(form.tool_format).is_whole_answer;
  return form;
}

TEST(ConstraintTest, AnAnswerOfLlamaThatBeginsAsACallIsOne) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  for (const std::string space : {"", " ", "\n\n"}) {
    const auto constraint = factory.make(llama_calls());
    const auto accept = [&](std::string_view text) {
      for (const char byte : text) {
        ASSERT_TRUE(is_allowed(filled(*constraint), uint8_t(byte))) << byte << " of " << text;
        constraint->accept(uint8_t(byte));
      }
    };
    accept(space + "{");
    EXPECT_FALSE(is_allowed(filled(*constraint), ' '));
    accept("\"name\": \"");
    EXPECT_FALSE(is_allowed(filled(*constraint), 't'));
    accept("sum\", \"parameters\": {\"x\": 1");
    EXPECT_FALSE(is_allowed(filled(*constraint), '"'));
    accept("2}}");
    EXPECT_TRUE(is_allowed(filled(*constraint), kEnd));
    EXPECT_FALSE(is_allowed(filled(*constraint), ' '));
  }
}

TEST(ConstraintTest, AnAnswerOfLlamaThatBeginsOtherwiseIsFree) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  const auto constraint = factory.make(llama_calls());
  for (const char byte : std::string(" As JSON: {\"t")) {
    ASSERT_TRUE(is_allowed(filled(*constraint), uint8_t(byte))) << byte;
    constraint->accept(uint8_t(byte));
  }
  EXPECT_TRUE(is_allowed(filled(*constraint), kEnd));
  // Back before the first letter it is open again.
  constraint->rewind(13);
  constraint->accept('{');
  EXPECT_TRUE(is_allowed(filled(*constraint), '"'));
  EXPECT_FALSE(is_allowed(filled(*constraint), 'x'));
  constraint->rewind(1);
  EXPECT_TRUE(is_allowed(filled(*constraint), 'x'));
}

TEST(ConstraintTest, BehindThePythonTagAnAnswerOfLlamaBegins) {
  const ListTokenizer tokens(small_vocabulary(), "<|python_tag|>");
  const int32_t tag = *tokens.find("<|python_tag|>");
  ConstraintFactory factory(tokens, tokens.vocab_size(), {kEnd});
  const auto call = factory.make(llama_calls()), code = factory.make(llama_calls());
  for (const auto& constraint : {call.get(), code.get()}) constraint->accept(tag);
  call->accept('{');
  EXPECT_FALSE(is_allowed(filled(*call), 'x'));
  for (const char byte : std::string("f({")) code->accept(byte);
  EXPECT_TRUE(is_allowed(filled(*code), 'x'));
  call->rewind(2);
  call->accept('I');
  call->accept(tag);
  call->accept('{');
  EXPECT_FALSE(is_allowed(filled(*call), 'x'));
}

TEST(ConstraintTest, BehindTheEndComesTheEnd) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  const auto constraint = factory.make({.kind = FormKind::choice, .text = {}, .choices = {"12"}});
  EXPECT_THROW(constraint->accept('3'), Error);
  constraint->accept('1');
  EXPECT_FALSE(is_allowed(filled(*constraint), kEnd));
  constraint->accept('2');
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint32_t> mask = filled(*constraint);
    int count = 0;
    for (const uint32_t word : mask) count += std::popcount(word);
    EXPECT_EQ(count, 1);
    EXPECT_TRUE(is_allowed(mask, kEnd));
    constraint->accept(kEnd);
  }
}

TEST(ConstraintTest, WithoutAWayOnNothingIsAllowed) {
  const ListTokenizer letters({"a", "b"});
  ConstraintFactory factory(letters, letters.vocab_size(), {3});
  const auto constraint = factory.make({.kind = FormKind::choice, .text = {}, .choices = {"ax"}});
  constraint->accept(0);
  EXPECT_EQ(filled(*constraint, letters.vocab_size()), std::vector<uint32_t>{0}) << "an end would not have the form";
  ConstraintFactory endless(letters, letters.vocab_size(), {});
  EXPECT_THROW(endless.make({.kind = FormKind::json_object, .text = {}, .choices = {}}), UsageError);
}

TEST(ConstraintTest, HostileFormsEndInTime) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  for (const char* text : {"(a?){9999}", "((a|b)?(a|c)?){4000}", "(([^x]?)(.?)){3000}"}) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      const auto constraint = factory.make({.kind = FormKind::regex, .text = text, .choices = {}});
      filled(*constraint);
    } catch (const Error&) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << text;
  }
}

TEST(ConstraintTest, MasksOfEqualStatesAreSharedByRequests) {
  ConstraintFactory factory(kTokens, kTokens.vocab_size(), {kEnd});
  const Form form = forms()[1];
  for (int round = 0; round < 3; ++round) {
    const auto constraint = factory.make(form);
    filled(*constraint);
    constraint->accept('{');
    filled(*constraint);
    EXPECT_EQ(factory.masks().num_cached(), 2u);
  }
}

// What a sink heard.
class Recorder : public RequestSink {
 public:
  explicit Recorder(std::promise<std::pair<std::vector<int32_t>, Finish>> promise) : promise_(std::move(promise)) {}
  void on_tokens(std::span<const TokenEvent> tokens) override {
    for (const TokenEvent& token : tokens) tokens_.push_back(token.token);
  }
  void on_finish(const Finish& finish) override { promise_.set_value({tokens_, finish}); }

 private:
  std::promise<std::pair<std::vector<int32_t>, Finish>> promise_;
  std::vector<int32_t> tokens_;
};

TEST(ConstrainedModelTest, AnUntrainedModelsAnswersAreValid) {
  TestRank rank(cpu_kernels(), 2);
  ModelConfig m = family_defaults("llama");
  m.layers = 1, m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.ffn = 24, m.vocab = kTokens.vocab_size(),
  m.context = 1024;
  m.init_std = 0.2f;
  complete(m);
  const std::unique_ptr<Communicator> alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, m, DType::f32);
  model.part().initialize(rank.context, 11);
  ContinuousEngine engine(model, {.kv_blocks = 1024, .max_waiting = 1000});
  ConstraintFactory factory(kTokens, m.vocab, {kEnd});
  std::mt19937 random(1);
  auto client = std::async(std::launch::async, [&] {
    struct Asked {
      Json schema;
      std::future<std::pair<std::vector<int32_t>, Finish>> answer;
    };
    std::vector<Asked> asked;
    for (int i = 0; i < 200; ++i) {
      Json schema = random_schema(random, i % 4 == 0 ? 2 : 1);
      Request request;
      request.prompt = {int32_t(i % 250)};
      request.max_tokens = 1000;
      request.sampling.temperature = 1;
      request.sampling.seed = uint64_t(i);
      request.stop_tokens = {kEnd};
      request.constraint = factory.make({.kind = FormKind::json_schema, .text = schema.dump(), .choices = {}});
      std::promise<std::pair<std::vector<int32_t>, Finish>> promise;
      asked.push_back({std::move(schema), promise.get_future()});
      engine.submit(std::move(request), std::make_unique<Recorder>(std::move(promise)));
    }
    for (Asked& one : asked) {
      const auto [tokens, finish] = one.answer.get();
      ASSERT_EQ(finish.reason, FinishReason::stop) << finish.error;
      std::string text;
      for (const int32_t token : tokens) text += kTokens.spelling(token);
      const Json answer = Json::parse(text, nullptr, false);
      ASSERT_FALSE(answer.is_discarded()) << text;
      EXPECT_TRUE(is_valid(one.schema, answer)) << one.schema << "\n" << text;
    }
  });
  const auto stopper = std::async(std::launch::async, [&] {
    client.wait();
    engine.stop();
  });
  engine.run();
  client.get();
}

class RealVocabularies : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, RealVocabularies,
                         testing::Values("tokenizers/gpt2/tokenizer.json", "tokenizers/llama2/tokenizer.json",
                                         "models/stories260K"));

TEST_P(RealVocabularies, SpellJsonAndFillMasksSoon) {
  const std::string path = test_data(GetParam());
  if (path.empty()) GTEST_SKIP() << no_test_data(GetParam());
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path);
  const int32_t end = tokenizer->end_of_document().value_or(2);
  auto begin = Clock::now();
  ConstraintFactory factory(*tokenizer, tokenizer->vocab_size(), {end});
  const double built = us(begin);
  const Form form{.kind = FormKind::json_schema,
                  .text = R"({"type":"object","properties":{"name":{"type":"string"},
      "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"type":"string"}},
      "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
      "required":["name","age","tags","address"]})",
                  .choices = {}};
  const std::string text =
      "{\"name\": \"Zo\xC3\xAB Smith \xE2\x82\xAC\", \"age\": 41, \"tags\": [\"a\", \"long one, with words\"], "
      "\"address\": {\"street\": \"1 Main St\", \"city\": \"Springfield\"}}";
  std::vector<int32_t> tokens = tokenizer->encode(text);
  double cold = 0, warm = 0, accepting = 0;
  for (const bool is_warm : {false, true}) {
    const auto constraint = factory.make(form);
    std::vector<uint32_t> mask(size_t(tokenizer->vocab_size() + 31) / 32);
    for (const int32_t token : tokens) {
      begin = Clock::now();
      constraint->fill(mask);
      (is_warm ? warm : cold) += us(begin);
      // SentencePiece puts a space before the text, which the form does not have.
      if (token == tokens.front() && !is_allowed(mask, token)) {
        const std::string_view rest = factory.masks().bytes(token).substr(1);
        if (!rest.empty()) constraint->accept(tokenizer->find(rest).value());
        continue;
      }
      ASSERT_TRUE(is_allowed(mask, token)) << tokenizer->spelling(token);
      begin = Clock::now();
      constraint->accept(token);
      accepting += us(begin) / 2;
    }
    constraint->fill(mask);
    EXPECT_TRUE(is_allowed(mask, end));
  }
  const double n = double(tokens.size());
  fmt::print("{}: {} tokens; trie {:.0f} ms; fill cold {:.0f} us, warm {:.2f} us, accept {:.2f} us a token\n",
             GetParam(), tokenizer->vocab_size(), built / 1000, cold / n, warm / n, accepting / n);
  EXPECT_LT(warm, cold);
}

}  // namespace
}  // namespace weft::constrain
