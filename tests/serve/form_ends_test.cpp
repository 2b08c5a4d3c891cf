// How answers of a given form end: where the form is complete, whatever else the request forbids; with an error where
// the vocabulary cannot write it; and requests that leave no first token are refused.
#include "serve/constrained.h"
#include "serve/marked_tokenizer.h"
#include "serve/test_server.h"
#include "serve/with_engine.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"

namespace weft {
namespace {

using nlohmann::json;

// Tokens are a, b and bc; the last one ends an answer.
class FewTokens : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string_view name() const override { return "few"; }
  int32_t vocab_size() const override { return 4; }
  std::optional<int32_t> end_of_document() const override { return 3; }
  void encode(std::string_view, const EncodeOptions&, std::vector<int32_t>& ids) const override { ids.push_back(0); }
  std::unique_ptr<TokenDecoder> start_decoding(bool) const override { return std::make_unique<Decoder>(*this); }
  std::string spelling(int32_t id) const override {
    constexpr const char* kSpellings[] = {"a", "b", "bc", "<end>"};
    return kSpellings[id];
  }
  std::optional<int32_t> find(std::string_view) const override { return {}; }
  bool is_special(int32_t id) const override { return id == 3; }
  size_t cut(std::string_view text) const override { return text.size(); }
  std::string to_json() const override { return "{}"; }

 private:
  class Decoder : public TokenDecoder {
   public:
    explicit Decoder(const FewTokens& tokenizer) : tokenizer_(tokenizer) {}
    void push(int32_t id, std::string& out) override { out += tokenizer_.spelling(id); }
    void finish(std::string&) override {}

   private:
    const FewTokens& tokenizer_;
  };
};

const FewTokens kFewTokens;
const int32_t kEndOfFew = *kFewTokens.end_of_document();

api::OutputForm regex_form(std::string text) {
  return {.kind = api::OutputForm::Kind::regex, .text = std::move(text), .choices = {}};
}

struct FormOfFew {
  const char *name, *regex;
  const char* refusal;  // a part of it; empty: none
};
void PrintTo(const FormOfFew& c, std::ostream* out) { *out << c.name; }
class FormsOfFewTokens : public testing::TestWithParam<FormOfFew> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, FormsOfFewTokens,
    testing::Values(FormOfFew{"Written", "[ab]+", ""}, FormOfFew{"OtherLetters", "[x-z]+", "cannot write"},
                    FormOfFew{"OtherLettersOrNone", "[x-z]*", ""}, FormOfFew{"InAToken", "c+", "cannot write"},
                    FormOfFew{"EndsAToken", "bc", ""}, FormOfFew{"Nested", "((a{0,100}){0,100}){0,100}", "ambiguous"},
                    FormOfFew{"Repeated", "(a*){10000}", "ambiguous"}),
    [](const auto& c) { return c.param.name; });

TEST_P(FormsOfFewTokens, AreRefusedWhenTheyAreMade) {
  constrain::ConstraintFactory factory(kFewTokens, kFewTokens.vocab_size(), {kEndOfFew});
  for (int round = 0; round < 2; ++round) {  // of a form that is refused nothing is kept
    std::string refusal;
    try {
      factory.make(regex_form(GetParam().regex));
    } catch (const UsageError& e) {
      refusal = e.what();
    }
    EXPECT_EQ(refusal.empty(), std::string_view(GetParam().refusal).empty()) << refusal;
    EXPECT_NE(refusal.find(GetParam().refusal), std::string::npos) << refusal;
  }
}

// What comes behind a trigger may never come.
TEST(FormsOfFewTokensTest, AreNotRefusedBehindATrigger) {
  constrain::ConstraintFactory factory(kFewTokens, kFewTokens.vocab_size(), {kEndOfFew});
  api::OutputForm form = regex_form("[x-z]+");
  form.trigger = "ab";
  EXPECT_TRUE(factory.make(form));
}

TEST(FormsOfFewTokensTest, OnlyACompleteFormLetsTheEndCome) {
  constrain::ConstraintFactory factory(kFewTokens, kFewTokens.vocab_size(), {kEndOfFew});
  const auto constraint = factory.make(regex_form("ab?x?"));
  const auto stuck = factory.make(regex_form("abx"));
  EXPECT_FALSE(may_come(mask_of(*constraint, kFewTokens), kEndOfFew));
  for (const int32_t token : {0, 1}) constraint->accept(token), stuck->accept(token);
  EXPECT_EQ(mask_of(*constraint, kFewTokens).front(), 1u << kEndOfFew);
  EXPECT_EQ(mask_of(*stuck, kFewTokens).front(), 0u) << "no token spells x";
  constraint->accept(kEndOfFew);
  EXPECT_EQ(mask_of(*constraint, kFewTokens).front(), 1u << kEndOfFew) << "behind the end nothing else comes";
}

ModelConfig config_of_vocab(int64_t vocab) {
  ModelConfig m = family_defaults("llama");
  m.layers = 1, m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.ffn = 24, m.vocab = vocab, m.context = 256;
  m.init_std = 0.2f;
  complete(m);
  return m;
}

class FormEndsTest : public testing::Test {
 protected:
  FormEndsTest() { model_.part().initialize(rank_.context, 11); }
  Request request_of(const std::string& regex) {
    Request request = sampled({0, 1}, 40, 3);
    request.stop_tokens = {kEndOfFew};
    request.constraint = factory_.make(regex_form(regex));
    return request;
  }

  TestRank rank_{cpu_kernels(), 2};
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  const Mesh mesh_{*alone_, {}};
  ForwardModel model_{rank_.context, mesh_, config_of_vocab(kFewTokens.vocab_size()), DType::f32};
  constrain::ConstraintFactory factory_{kFewTokens, kFewTokens.vocab_size(), {kEndOfFew}};
};

// With draft tokens and without.
TEST_F(FormEndsTest, OneThatCannotGoOnIsThatRequestsError) {
  for (const int64_t draft_tokens : {0, 3}) {
    with_engine(model_, {.kv_blocks = 64, .max_draft_tokens = draft_tokens}, [&](Engine& engine) {
      std::future<Heard> stuck = ask(engine, request_of("aaaaaaaax")), other = ask(engine, request_of("(ab){12}"));
      const Heard heard = stuck.get();
      EXPECT_EQ(heard.finish.reason, FinishReason::error);
      EXPECT_TRUE(heard.finish.is_refusal);
      EXPECT_NE(heard.finish.error.find("nothing after \"aaaaaaaa\" that this model's"), std::string::npos)
          << heard.finish.error;
      EXPECT_EQ(heard.tokens, std::vector<int32_t>(8, 0));
      EXPECT_EQ(other.get().finish.reason, FinishReason::stop);
      EXPECT_EQ(ask(engine, request_of("ab")).get().tokens, (std::vector<int32_t>{0, 1}));
    });
  }
}

// What the request forbids is its own fault too, with a form and without, and named.
TEST_F(FormEndsTest, OneThatForbidsAllThatGoesOnIsToldByWhichKey) {
  const auto error_of = [](Engine& engine, Request request) {
    const Finish finish = ask(engine, std::move(request)).get().finish;
    EXPECT_EQ(finish.reason, FinishReason::error);
    EXPECT_TRUE(finish.is_refusal) << finish.error;
    return finish.error;
  };
  for (const int64_t draft_tokens : {0, 3}) {
    with_engine(model_, {.kv_blocks = 64, .max_draft_tokens = draft_tokens}, [&](Engine& engine) {
      Request end = request_of("ab"), both = request_of("a(b|bca)"), free = sampled({0, 1}, 40, 3);
      end.sampling.logit_bias = {{kEndOfFew, -100.0f}};
      both.sampling.logit_bias = {{1, -100.0f}}, both.bad_words = {{0, 2}};
      free.bad_words = {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, free.sampling.allowed_tokens = {0};
      EXPECT_EQ(error_of(engine, std::move(end)),
                "logit_bias forbids every token that the form allows after \"ab\": allow one");
      EXPECT_EQ(error_of(engine, std::move(both)),
                "logit_bias and bad_words forbid every token that the form allows after \"a\": allow one");
      EXPECT_EQ(error_of(engine, std::move(free)),
                "bad_words and allowed_token_ids forbid every token that could come next: allow one");
    });
  }
}

struct ForbiddenEnd {
  const char* name;
  int64_t min_tokens;
  std::vector<int32_t> allowed;
  bool is_refused;
};
void PrintTo(const ForbiddenEnd& c, std::ostream* out) { *out << c.name; }
class ForbiddenEnds : public FormEndsTest, public testing::WithParamInterface<ForbiddenEnd> {};
INSTANTIATE_TEST_SUITE_P(Cases, ForbiddenEnds,
                         testing::Values(ForbiddenEnd{"MinTokens", 20, {}, false},
                                         ForbiddenEnd{"Allowed", 0, {0, 1}, false},
                                         ForbiddenEnd{"Both", 20, {0, 1}, false},
                                         ForbiddenEnd{"NoFirst", 0, {1, 2}, true},
                                         ForbiddenEnd{"OnlyTheEnd", 20, {3}, true}),
                         [](const auto& c) { return c.param.name; });

TEST_P(ForbiddenEnds, ComeWhereTheFormIsComplete) {
  for (const int64_t draft_tokens : {0, 3}) {
    with_engine(model_, {.kv_blocks = 64, .max_draft_tokens = draft_tokens}, [&](Engine& engine) {
      Request request = request_of("ab(ab)?");
      request.min_tokens = GetParam().min_tokens, request.sampling.allowed_tokens = GetParam().allowed;
      if (GetParam().is_refused) {
        EXPECT_THROW(ask(engine, std::move(request)), UsageError);
        return;
      }
      const Heard heard = ask(engine, std::move(request)).get();
      EXPECT_EQ(heard.finish.reason, FinishReason::stop) << heard.finish.error;
      EXPECT_EQ(heard.finish.stop_token, kEndOfFew);
      const std::vector<int32_t> once{0, 1}, twice{0, 1, 0, 1};
      EXPECT_TRUE(heard.tokens == twice || (heard.tokens == once && GetParam().min_tokens == 0));
    });
  }
}

TEST_F(FormEndsTest, RequestsThatForbidAllFirstTokensAreRefused) {
  with_engine(model_, {.kv_blocks = 64}, [&](Engine& engine) {
    Request request = sampled({0, 1}, 4, 3);
    request.stop_tokens = {kEndOfFew}, request.min_tokens = 2, request.sampling.allowed_tokens = {kEndOfFew};
    EXPECT_THROW(ask(engine, std::move(request)), UsageError);
    request = sampled({0, 1}, 4, 3);
    request.sampling.logit_bias = {{0, -100.0f}, {1, -100.0f}, {2, -100.0f}, {3, -100.0f}};
    EXPECT_THROW(ask(engine, std::move(request)), UsageError);
    request = sampled({0, 1}, 4, 3);
    request.bad_words = {{0}, {1}, {2}}, request.stop_tokens = {kEndOfFew}, request.min_tokens = 1;
    EXPECT_THROW(ask(engine, std::move(request)), UsageError);
    request = sampled({0, 1}, 4, 3);
    request.bad_words = {{0}, {1, 1}, {2}}, request.stop_tokens = {kEndOfFew}, request.min_tokens = 1;
    EXPECT_NE(ask(engine, std::move(request)).get().tokens, std::vector<int32_t>{}) << "1 may come once";
  });
}

TEST(RefusedFormsTest, AreTheClientsFault) {
  constrain::ConstraintFactory forms(ByteTokenizer(), ByteTokenizer().vocab_size(), {ByteTokenizer::kEndOfDocument});
  TestServer server({.api = {}, .adapter_folder = {}, .constraints = &forms});
  const auto status = [&](const char* regex) {
    const bench::HttpResult result = server.post("/v1/completions", {{"prompt", "x"}, {"guided_regex", regex}});
    if (result.status != 200) EXPECT_NE(result.body.find("ambiguous"), std::string::npos) << result.body;
    return result.status;
  };
  EXPECT_EQ(status("(a*){10000}"), 400);
  EXPECT_EQ(status("((a{0,100}){0,100}){0,100}"), 400);
  EXPECT_EQ(status("a{0,100}"), 200);
}

// Of what is out of range, has another type or is missing.
TEST(ErrorsTest, TheParamIsTheKey) {
  constrain::ConstraintFactory forms(ByteTokenizer(), ByteTokenizer().vocab_size(), {ByteTokenizer::kEndOfDocument});
  TestServer server({.api = {}, .adapter_folder = {}, .constraints = &forms});
  for (const auto& [param, body] : std::initializer_list<std::pair<const char*, json>>{
           {"temperature", {{"prompt", "x"}, {"temperature", -1}}},
           {"logit_bias", {{"prompt", "x"}, {"logit_bias", {{"1", 101}}}}},
           {"top_p", {{"prompt", "x"}, {"top_p", "high"}}},
           {"n", {{"prompt", "x"}, {"n", 17}}},
           {"max_tokens", {{"prompt", "x"}, {"max_tokens", -1}}},
           {"stop[1]", {{"prompt", "x"}, {"stop", {"a", 1}}}},
           {"stream_options.include_usage", {{"prompt", "x"}, {"stream_options", {{"include_usage", 1}}}}},
           {"prompt", json::object()},
           {"guided_regex", {{"prompt", "x"}, {"guided_regex", "(?=a)"}}},
           {"structured_outputs.choice", {{"prompt", "x"}, {"structured_outputs", {{"choice", json::array()}}}}}}) {
    const bench::HttpResult result = server.post("/v1/completions", body);
    EXPECT_EQ(result.status, 400) << param;
    EXPECT_EQ(json::parse(result.body)["error"]["param"], param) << result.body;
  }
  const json error = json::parse(server.post("/v1/completions", json::array()).body)["error"];
  EXPECT_TRUE(error["param"].is_null()) << error;
}

// Of a server without room to wait what it can hold at once is served.
TEST(NumAnswersTest, AreThoseThatFit) {
  TestSetup setup;
  setup.engine.limits.max_running = 2;
  for (const int64_t waiting : {0, 4}) {
    setup.engine.limits.max_waiting = waiting;
    TestServer server(setup);
    const auto status = [&](int64_t n) {
      return server.post("/v1/completions", {{"prompt", "x"}, {"n", n}, {"max_tokens", 3}}).status;
    };
    EXPECT_EQ(status(1), 200);
    EXPECT_EQ(status(2 + waiting), 200);
    EXPECT_EQ(status(3 + waiting), 400) << "it is never worth trying again";
    const auto inputs = [&](int64_t count) {
      return server.post("/v1/embeddings", {{"input", std::vector<std::string>(size_t(count), "x")}}).status;
    };
    EXPECT_EQ(inputs(2 + waiting), 200);
    EXPECT_EQ(inputs(3 + waiting), 400);
  }
}

TEST(InternalErrorTest, IsToldInTheLog) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(api::to_api_error(Error("a cable came off")).status(), 500);
  EXPECT_EQ(api::to_api_error(UsageError("not so")).status(), 400);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("a cable came off"), std::string::npos);
  EXPECT_EQ(log.find("not so"), std::string::npos);
}

struct OffsetCase {
  const char *name, *prompt, *answer;
  bool has_echo;
  std::vector<int64_t> want;
};
void PrintTo(const OffsetCase& c, std::ostream* out) { *out << c.name; }
class TextOffsets : public testing::TestWithParam<OffsetCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TextOffsets,
                         testing::Values(OffsetCase{"Letters", "x", "ab", false, {0, 1}},
                                         OffsetCase{"Emoji",
                                                    "x",
                                                    "a\xF0\x9F\x98\x80"
                                                    "b",
                                                    false,
                                                    {0, 1, 1, 1, 1, 2}},
                                         OffsetCase{"Two", "x", "\xC3\xA9\xC3\xA9!", false, {0, 0, 1, 1, 2}},
                                         OffsetCase{"NeverFinished",
                                                    "x",
                                                    "\xF0\x9F"
                                                    "a\xFF"
                                                    "b",
                                                    false,
                                                    {0, 0, 1, 2, 3}},
                                         OffsetCase{"Echo", "H\xC3\xAFx", "\xC3\xA9!", true, {0, 1, 1, 2, 3, 3, 4}}),
                         [](const auto& c) { return c.param.name; });

TEST_P(TextOffsets, CountCharactersOfTheText) {
  const OffsetCase& c = GetParam();
  TestServer server({.engine = {.answer = saying(c.answer)}, .api = {}, .adapter_folder = {}});
  json request = {
      {"prompt", c.prompt}, {"max_tokens", std::string_view(c.answer).size()}, {"logprobs", 0}, {"echo", c.has_echo}};
  const json choice = server.ask("/v1/completions", request)["choices"][0];
  EXPECT_EQ(choice["logprobs"]["text_offset"], json(c.want)) << choice["text"];
  request["stream"] = true;
  std::vector<int64_t> offsets;
  for (const json& event : server.stream("/v1/completions", request)) {
    if (!event.is_object() || !event["choices"][0]["logprobs"].is_object()) continue;
    for (const json& offset : event["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(offsets, c.want);
}

}  // namespace
}  // namespace weft
