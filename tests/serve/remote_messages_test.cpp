// Messages between replicas: every field arrives as it was, and bytes that are no message are refused.
#include "weft/serve/remote/messages.h"

#include <limits>
#include <tuple>

#include "serve/mutate.h"

namespace weft::remote {
namespace {

// Each has all fields, or does not compile.
auto fields_of(const SamplingOptions& x) {
  const auto& [a, b, c, d, e, f, g, h, i, bias, allowed] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, bias, allowed);
}
// The constraint goes beside it.
auto fields_of(const Request& x) {
  const auto& [kind, prompt, adapter, second_text, pooling, normalises, weighed, most, least, sampling, stops, bad,
               constraint, scores, prompt_scores, priority, user] = x;
  return std::tuple_cat(std::tie(kind, prompt, adapter, second_text, pooling, normalises, weighed, most, least, stops,
                                 bad, scores, prompt_scores, priority, user),
                        fields_of(sampling));
}
auto fields_of(const api::OutputForm& x) {
  const auto& [kind, text, choices, schemas, format, is_parallel, has_marker, reasoning_format, reasoning, trigger,
               is_whole_answer, may_be_text] = x;
  return std::tie(kind, text, choices, schemas, format, is_parallel, has_marker, reasoning_format, reasoning, trigger,
                  is_whole_answer, may_be_text);
}
auto fields_of(const EngineLimits& x) {
  const auto& [a, b, c, d, e, f] = x;
  return std::tie(a, b, c, d, e, f);
}
auto fields_of(const EngineStats& x) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = x;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
}
auto fields_of(const Finish& x) {
  const auto& [reason, stop, error, is_refusal, retry, usage, times] = x;
  const auto& [prompt, cached, completion] = usage;
  const auto& [queued, prefill, decode] = times;
  return std::tie(reason, stop, error, is_refusal, retry, prompt, cached, completion, queued, prefill, decode);
}
auto fields_of(const ScoredToken& x) {
  const auto& [token, rank, top] = x;
  std::vector<std::pair<int32_t, float>> alternatives{{token.token, token.log_prob}};
  for (const auto& [one, log_prob] : top) alternatives.emplace_back(one, log_prob);
  return std::tuple(alternatives, rank);
}

// No field has its default, and no two numbers are alike.
Request full_request() {
  Request r;
  r.kind = Request::Kind::embed;
  r.pooling = Pooling::weighted_mean, r.normalises = false;
  r.weighed = {21, 22};
  r.prompt = {5, 0, std::numeric_limits<int32_t>::max(), -1};
  r.adapter = std::string("law\0\xff", 5), r.second_text = 23;
  r.max_tokens = std::numeric_limits<int64_t>::max(), r.min_tokens = 3;
  r.sampling = {.temperature = 0.1,
                .top_k = 4,
                .top_p = 0.5,
                .min_p = std::numeric_limits<double>::denorm_min(),
                .typical_p = 0.7,
                .seed = std::numeric_limits<uint64_t>::max(),
                .presence_penalty = -0.25,
                .frequency_penalty = 1.5,
                .repetition_penalty = 1.25,
                .logit_bias = {{7, -100.0f}, {8, 0.1f}},
                .allowed_tokens = {16, 17}};
  r.stop_tokens = {9, 10};
  r.bad_words = {{11}, {}, {12, 13}};
  r.logprobs = 14, r.prompt_logprobs = 0;
  r.priority = -15;
  r.user = "somebody";
  return r;
}
api::OutputForm full_form() {
  return {.kind = api::OutputForm::Kind::tool_calls,
          .text = "text",
          .choices = {"a", ""},
          .schemas = {"{}", "{\"type\": \"object\"}"},
          .tool_format = api::ToolFormat::mistral,
          .is_parallel = true,
          .has_marker = true,
          .reasoning_format = api::ReasoningFormat::command,
          .reasoning = api::ReasoningPlace::inside,
          .trigger = "[TOOL_CALLS]",
          .is_whole_answer = true};
}
Finish full_finish() {
  return {.reason = FinishReason::error,
          .stop_token = 1,
          .error = "why",
          .is_refusal = true,
          .retry_after_s = 2,
          .usage = {3, 4, 5},
          .times = {0.6, 0.7, 0.8}};
}
const EngineStats kStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
const ScoredToken kScored{{3, -0.5f}, 2, {{4, -0.25f}, {5, -std::numeric_limits<float>::infinity()}}};

// Of each kind one.
std::vector<ToReplica> messages_to() {
  std::vector<ToReplica> all;
  Submit submit;
  submit.id = 77, submit.request = full_request(), submit.form = full_form();
  all.emplace_back(std::move(submit));
  all.emplace_back(Cancel{78});
  all.emplace_back(LoadAdapter{79, "name", "folder"});
  all.emplace_back(UnloadAdapter{"name"});
  all.emplace_back(Drain{80});
  all.emplace_back(Stop{});
  return all;
}
std::vector<FromReplica> messages_from() {
  return {Hello{{1, 2, 3, 4}, {"law", "art"}},
          PromptScored{5, {ScoredToken{}, kScored}},
          TokensCame{6, {{7, kScored}, {8, {}}}},
          Embedded{9, {0.1f, -0.0f}},
          Finished{10, full_finish()},
          AdapterLoaded{11, "error", {"law"}},
          StatsCame{kStats},
          Ended{"why"}};
}

template <class Message>
Message there_and_back(const Message& message) {
  const std::vector<std::byte> bytes = encode(message);
  if constexpr (std::is_same_v<Message, ToReplica>) {
    return decode_to_replica(bytes);
  } else {
    return decode_from_replica(bytes);
  }
}
template <class One>
One sent(One message) {
  using All = std::conditional_t<std::is_constructible_v<ToReplica, One>, ToReplica, FromReplica>;
  return std::get<One>(there_and_back(All(std::move(message))));
}

TEST(RemoteMessagesTest, RequestsArriveAsTheyWere) {
  Submit submit;
  submit.id = 77, submit.request = full_request(), submit.form = full_form();
  const Submit full = sent(std::move(submit));
  EXPECT_EQ(full.id, 77u);
  EXPECT_EQ(fields_of(full.request), fields_of(full_request()));
  ASSERT_TRUE(full.form);
  EXPECT_EQ(fields_of(*full.form), fields_of(full_form()));
  const Submit empty = sent(Submit{});
  EXPECT_EQ(fields_of(empty.request), fields_of(Request{}));
  EXPECT_FALSE(empty.form);
}

TEST(RemoteMessagesTest, AnswersArriveAsTheyWere) {
  const Hello hello = sent(Hello{{1, 2, 3, 4, 5, true}, {"law", "art"}});
  EXPECT_EQ(fields_of(hello.limits), fields_of(EngineLimits{1, 2, 3, 4, 5, true}));
  EXPECT_EQ(hello.adapters, (std::vector<std::string>{"law", "art"}));
  const PromptScored prompt = sent(PromptScored{5, {ScoredToken{}, kScored}});
  ASSERT_EQ(prompt.tokens.size(), 2u);
  EXPECT_EQ(fields_of(prompt.tokens[0]), fields_of(ScoredToken{}));
  EXPECT_EQ(fields_of(prompt.tokens[1]), fields_of(kScored));
  const TokensCame tokens = sent(TokensCame{6, {{7, kScored}}});
  EXPECT_EQ(tokens.id, 6u);
  EXPECT_EQ(tokens.tokens.at(0).token, 7);
  EXPECT_EQ(fields_of(tokens.tokens[0].scored), fields_of(kScored));
  const Finished finished = sent(Finished{10, full_finish()});
  EXPECT_EQ(finished.id, 10u);
  EXPECT_EQ(fields_of(finished.finish), fields_of(full_finish()));
  EXPECT_EQ(fields_of(sent(StatsCame{kStats}).stats), fields_of(kStats));
  EXPECT_EQ(sent(Embedded{9, {0.1f, 3}}).vector, (std::vector<float>{0.1f, 3}));
  EXPECT_EQ(sent(LoadAdapter{79, "name", "folder"}).folder, "folder");
  EXPECT_EQ(sent(AdapterLoaded{11, "error", {"law"}}).adapters, std::vector<std::string>{"law"});
  EXPECT_EQ(sent(Drain{80}).patience_ms, 80);
  EXPECT_EQ(sent(Ended{"why"}).error, "why");
}

// What every kind of message looks like when it was cut, went on or was changed: none is taken for what it is not,
// and none does harm.
template <class Message, class Decode>
void damage(const Message& message, const Decode& decode, uint64_t seed) {
  const std::vector<std::byte> bytes = encode(message);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(decode(std::span(bytes).first(size)), Error) << message.index() << " cut to " << size;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte(0));
  EXPECT_THROW(decode(longer), Error);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string changed = mutated(text, seed + i, {std::string(4, '\xff'), std::string(8, '\0')});
    try {
      const Message other = decode(std::as_bytes(std::span(changed.data(), changed.size())));
      EXPECT_EQ(encode(other).size(), changed.size());
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("damaged"), std::string::npos);
    }
  }
}

TEST(RemoteMessagesTest, DamagedOnesAreRefused) {
  uint64_t seed = 1;
  for (const ToReplica& message : messages_to()) damage(message, decode_to_replica, seed += 1000);
  for (const FromReplica& message : messages_from()) damage(message, decode_from_replica, seed += 1000);
}

struct BadBytes {
  const char* name;
  std::vector<uint8_t> bytes;
};
void PrintTo(const BadBytes& c, std::ostream* out) { *out << c.name; }
class BadBytesTest : public testing::TestWithParam<BadBytes> {};

TEST_P(BadBytesTest, AreNoMessage) {
  EXPECT_THROW(decode_to_replica(std::as_bytes(std::span(GetParam().bytes))), Error);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, BadBytesTest,
    testing::Values(BadBytes{"Empty", {}}, BadBytes{"UnknownKind", {6}}, BadBytes{"FarUnknownKind", {255}},
                    BadBytes{"StopWithMore", {5, 0}},
                    BadBytes{"UnknownKindOfRequest", {0, 1, 0, 0, 0, 0, 0, 0, 0, 2}},
                    BadBytes{"PromptLongerThanItsBytes", {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1}},
                    BadBytes{"PromptOfMostTokens", {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0}},
                    BadBytes{"NameLongerThanItsBytes", {3, 5, 0, 0, 0, 'a'}}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace weft::remote
