// The sampler's choices against straightforward formulas: each option alone and all together.
#include "weft/serve/sampler.h"

#include <map>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/serve/log_probs.h"

namespace weft {
namespace {

std::vector<float> random_logits(size_t vocab, uint64_t seed) {
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i) logits[i] = 3 * philox_normal(seed, 1, i);
  return logits;
}

using Distribution = std::vector<double>;  // of each token

void normalize(Distribution& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

std::vector<size_t> by_probability(const Distribution& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  return order;
}

void keep(Distribution& p, const std::vector<size_t>& order, size_t count) {
  for (size_t i = count; i < order.size(); ++i) p[order[i]] = 0;
  normalize(p);
}

size_t count_reaching(const Distribution& p, const std::vector<size_t>& order, double mass) {
  double reached = 0;
  size_t count = 0;
  while (count < order.size() && reached < mass) reached += p[order[count++]];
  return count;
}

// As the papers have it, one definition after the other, in double precision.
Distribution reference(std::vector<float> logits, const SamplingOptions& o, const SamplingPast& past) {
  for (const auto& [token, bias] : o.logit_bias) logits[size_t(token)] += bias;
  for (size_t t = 0; t < logits.size(); ++t) {
    const auto in_answer = std::count(past.answer.begin(), past.answer.end(), int32_t(t));
    const auto in_prompt = std::count(past.prompt.begin(), past.prompt.end(), int32_t(t));
    double x = double(logits[t]);
    if (in_answer + in_prompt > 0) x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
    x -= double(in_answer) * o.frequency_penalty + (in_answer > 0 ? o.presence_penalty : 0);
    logits[t] = float(x);
  }
  Distribution p(logits.size());
  for (size_t t = 0; t < p.size(); ++t) p[t] = std::exp(double(logits[t]) / o.temperature);
  normalize(p);
  if (o.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x * std::log(x);
    std::vector<size_t> order = by_probability(p);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    keep(p, order, count_reaching(p, order, o.typical_p));
  }
  if (o.min_p > 0) {
    const double best = *std::max_element(p.begin(), p.end());
    for (double& x : p) x = x < o.min_p * best ? 0 : x;
    normalize(p);
  }
  if (o.top_k > 0) keep(p, by_probability(p), std::min(size_t(o.top_k), p.size()));
  if (o.top_p < 1) {
    const std::vector<size_t> order = by_probability(p);
    keep(p, order, count_reaching(p, order, o.top_p));
  }
  return p;
}

struct SamplerCase {
  const char* name;
  SamplingOptions options;
};

class SamplerAgainstFormulas : public testing::TestWithParam<SamplerCase> {};
INSTANTIATE_TEST_SUITE_P(
    Options, SamplerAgainstFormulas,
    testing::Values(SamplerCase{"Plain", {.temperature = 1}}, SamplerCase{"Warm", {.temperature = 2.5}},
                    SamplerCase{"Cold", {.temperature = 0.3}}, SamplerCase{"TopK", {.temperature = 1, .top_k = 5}},
                    SamplerCase{"TopP", {.temperature = 1.5, .top_p = 0.7}},
                    SamplerCase{"MinP", {.temperature = 2, .min_p = 0.1}},
                    SamplerCase{"Typical", {.temperature = 1.5, .typical_p = 0.6}},
                    SamplerCase{"Presence", {.temperature = 1, .presence_penalty = 1.5}},
                    SamplerCase{"Frequency", {.temperature = 1, .frequency_penalty = -1}},
                    SamplerCase{"Repetition", {.temperature = 1, .repetition_penalty = 1.8}},
                    SamplerCase{"Bias", {.temperature = 1, .logit_bias = {{3, 4.0f}, {7, -6.0f}}}},
                    SamplerCase{"All",
                                {.temperature = 1.7,
                                 .top_k = 12,
                                 .top_p = 0.9,
                                 .min_p = 0.02,
                                 .typical_p = 0.95,
                                 .presence_penalty = 0.5,
                                 .frequency_penalty = 0.4,
                                 .repetition_penalty = 1.3,
                                 .logit_bias = {{1, 2.0f}}}}),
    [](const auto& test) { return test.param.name; });

TEST_P(SamplerAgainstFormulas, DrawsFromTheirDistribution) {
  constexpr size_t kVocab = 24, kDraws = 40000;
  const std::vector<float> logits = random_logits(kVocab, 5);
  const std::vector<int32_t> prompt{1, 2, 3}, answer{3, 4, 4, 4, 9};
  const SamplingPast past{.prompt = prompt, .answer = answer};
  const Distribution want = reference(logits, GetParam().options, past);
  Sampler sampler(GetParam().options);
  std::vector<double> got(kVocab, 0);
  for (uint64_t i = 0; i < kDraws; ++i) got[size_t(sampler.choose(logits, i, past))] += 1.0 / kDraws;
  for (size_t t = 0; t < kVocab; ++t) {
    if (want[t] == 0) EXPECT_EQ(got[t], 0) << "token " << t;
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(got[t], want[t], 5 * std::sqrt(want[t] * (1 - want[t]) / kDraws) + 1e-9) << "token " << t;
  }
}

// Of a vocabulary of many blocks each draw is the one that the formulas give for its uniform number, in the order of
// the tokens, or of their probability where only the most likely ones are kept.
TEST(SamplerTest, DrawsOfALargeVocabularyAreThoseOfTheFormulas) {
  constexpr size_t kVocab = 9001;
  const std::vector<float> logits = random_logits(kVocab, 11);
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1, .seed = 5}, SamplingOptions{.temperature = 0.6, .top_p = 0.95, .seed = 6},
        SamplingOptions{.temperature = 1, .top_p = 0.9999, .seed = 6},
        SamplingOptions{.temperature = 0.8, .top_k = 40, .top_p = 0.9, .seed = 7},
        SamplingOptions{.temperature = 1.5, .min_p = 0.05, .seed = 8}}) {
    const Distribution want = reference(logits, options, {});
    Sampler sampler(options);
    std::map<int32_t, int> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      const int32_t token = sampler.choose(logits, i);
      EXPECT_GT(want[size_t(token)], 0) << options.top_p;
      ++seen[token];
    }
    // The likeliest ones come as often as they should; and where all are kept, in their order.
    const std::vector<size_t> order = by_probability(want);
    for (size_t i = 0; i < 5; ++i) {
      const double p = want[order[i]], share = seen[int32_t(order[i])] / 1000.0;
      EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / 1000)) << order[i];
    }
    if (options.top_p < 1 || options.top_k > 0 || options.min_p > 0) continue;
    for (uint64_t i = 0; i < 1000; ++i) {
      double target = double(to_uniform(philox(options.seed, i)[0]));
      size_t token = 0;
      while ((target -= want[token]) >= 0 && token + 1 < kVocab) ++token;
      const auto got = size_t(sampler.choose(logits, i));
      // Where the number falls all but between two tokens, rounding decides.
      if (got != token) EXPECT_LT(std::min(std::abs(target), std::abs(target + want[token])), 1e-6) << i;
    }
  }
}

TEST(TokenWeightsTest, AreExponentials) {
  std::vector<float> logits;
  for (int i = 0; i < 5000; ++i) logits.push_back(float(3 - 0.0199 * i + 1e-4 * (i % 7)));
  logits[1234] = -std::numeric_limits<float>::infinity(), logits[2345] = std::nanf("");
  const float top = highest(logits);
  EXPECT_EQ(top, logits[0]);
  TokenWeights weights;
  double sum = 0;
  const double got = weights.weigh(logits, top, 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = double(logits[i] - top), want = x >= -87 ? std::exp(x) : 0;
    EXPECT_NEAR(double(weights.values()[i]), std::isnan(want) ? 0 : want, 2e-7 * std::max(want, 0.0)) << logits[i];
    sum += std::isnan(want) ? 0 : want;
  }
  EXPECT_NEAR(got, sum, 1e-7 * sum);
  EXPECT_NEAR(log_sum_exp(logits), double(top) + std::log(sum), 1e-7);
  const auto last = int32_t(std::ranges::find_if(logits, [&](float x) { return x - top < -87 && std::isfinite(x); }) -
                            logits.begin()) -
                    1;
  // The token whose share of the sum a number falls into.
  double before = 0;
  for (size_t i = 0; i < 900; i += 37) {
    before = 0;
    for (size_t j = 0; j < i; ++j) before += double(weights.values()[j]);
    EXPECT_EQ(weights.at(before + 0.5 * double(weights.values()[i])), int32_t(i));
  }
  EXPECT_EQ(weights.at(got * 2), last) << "the last that has a weight";
  EXPECT_EQ(weights.weigh(logits, top, 1e-300), 1) << "the likeliest alone";
}

TEST(SamplerTest, ForbiddenTokensNeverCome) {
  const std::vector<float> logits{5, 4, 3, 2, 1, 0};
  const std::vector<int32_t> answer{2, 3}, banned{0};
  const std::vector<std::vector<int32_t>> bad_words{{2, 3, 1}, {4, 2}, {5}};
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    std::vector<bool> seen(logits.size(), false);
    for (uint64_t i = 0; i < 2000; ++i) {
      const SamplingPast past{.answer = answer, .banned = banned, .bad_words = bad_words};
      seen[size_t(sampler.choose(logits, i, past))] = true;
    }
    EXPECT_FALSE(seen[0]) << "banned";
    EXPECT_FALSE(seen[1]) << "would end a bad word of three tokens";
    EXPECT_TRUE(seen[2]) << "4 was not before it";
    EXPECT_FALSE(seen[5]) << "a bad word of one token";
  }
}

TEST(SamplerTest, OnlyAllowedTokensCome) {
  const std::vector<float> logits = random_logits(70, 3);
  std::vector<uint32_t> allowed(3, 0);
  for (const int t : {4, 33, 69}) allowed[size_t(t) / 32] |= 1u << (t % 32);
  Sampler sampler({.temperature = 5});
  for (uint64_t i = 0; i < 500; ++i) {
    const int32_t token = sampler.choose(logits, i, {.allowed = allowed});
    EXPECT_TRUE(token == 4 || token == 33 || token == 69) << token;
  }
  const std::vector<uint32_t> nothing(3, 0);
  EXPECT_THROW(sampler.choose(logits, 0, {.allowed = nothing}), Error);
}

// A request's own; what else forbids tokens does so among them.
TEST(SamplerTest, OnlyTokensThatTheRequestAllowsCome) {
  const std::vector<float> logits = random_logits(70, 3);
  const std::vector<int32_t> banned{33}, all{4, 33, 69, 1000};
  for (const double temperature : {0.0, 5.0}) {
    Sampler sampler({.temperature = temperature, .repetition_penalty = 1.5, .allowed_tokens = all});
    for (uint64_t i = 0; i < 500; ++i) {
      const int32_t token = sampler.choose(logits, i, {.prompt = banned, .banned = banned});
      EXPECT_TRUE(token == 4 || token == 69) << token;
    }
  }
  EXPECT_THROW(Sampler({.allowed_tokens = {33}}).choose(logits, 0, {.banned = banned}), Error);
  EXPECT_THROW(Sampler({.allowed_tokens = {1000}}).choose(logits, 0), Error);
}

// Of tokens 0 to 3, of which the form lets those come that `allowed` has bits for; 3 is an end.
struct EndCase {
  const char* name;
  uint32_t allowed;
  std::vector<int32_t> own, banned;
  int32_t want;  // -1: nothing
};
void PrintTo(const EndCase& c, std::ostream* out) { *out << c.name; }
class SamplerEnds : public testing::TestWithParam<EndCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, SamplerEnds,
    testing::Values(EndCase{"Banned", 0b1001, {}, {3}, 0}, EndCase{"Complete", 0b1000, {}, {3}, 3},
                    EndCase{"NotAllowed", 0b1000, {0, 1}, {}, 3}, EndCase{"AllowedIsLeft", 0b1011, {1}, {3}, 1},
                    EndCase{"NoneAllowedIsLeft", 0b1011, {2}, {3}, 3}, EndCase{"NotComplete", 0b0011, {2}, {3}, -1},
                    EndCase{"DeadEnd", 0, {}, {3}, -1}),
    [](const auto& c) { return c.param.name; });

TEST_P(SamplerEnds, ComeAfterAllWhereAFormHasNothingElse) {
  const EndCase& c = GetParam();
  const std::vector<float> logits{4, 3, 2, 1};
  const std::vector<int32_t> ends{3};
  Sampler sampler({.temperature = 0, .allowed_tokens = c.own});
  const SamplingPast past{.allowed = {&c.allowed, 1}, .ends = ends, .banned = c.banned};
  EXPECT_EQ(sampler.may_choose(past, 4), c.want >= 0);
  if (c.want < 0)
    EXPECT_THROW(sampler.choose(logits, 0, past), Error);
  else
    EXPECT_EQ(sampler.choose(logits, 0, past), c.want);
}

TEST(SamplerTest, ABiasOfMinus100Forbids) {
  const std::vector<float> logits{500, 1};
  EXPECT_EQ(Sampler({.temperature = 0, .logit_bias = {{0, -100.0f}}}).choose(logits, 0), 1);
}

TEST(SamplerTest, GreedyPenaltiesAreExact) {
  const std::vector<float> logits{2.0f, 1.5f, 1.4f};
  const std::vector<int32_t> prompt{0}, once{1}, twice{1, 1};
  const auto chosen = [&](const SamplingOptions& o, const SamplingPast& past) {
    return Sampler(o).choose(logits, 0, past);
  };
  EXPECT_EQ(chosen({.temperature = 0, .repetition_penalty = 1.4}, {.prompt = prompt}), 1);  // 2 / 1.4 < 1.5
  EXPECT_EQ(chosen({.temperature = 0, .presence_penalty = 2}, {.prompt = prompt}), 0);      // of answers only
  EXPECT_EQ(chosen({.temperature = 0, .frequency_penalty = -0.3}, {.answer = once}), 0);
  EXPECT_EQ(chosen({.temperature = 0, .frequency_penalty = -0.3}, {.answer = twice}), 1);
}

TEST(SamplerTest, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(check_sampling({.typical_p = 0}), UsageError);
  EXPECT_THROW(check_sampling({.presence_penalty = 2.5}), UsageError);
  EXPECT_THROW(check_sampling({.frequency_penalty = -2.5}), UsageError);
  EXPECT_THROW(check_sampling({.repetition_penalty = 0}), UsageError);
  EXPECT_THROW(check_sampling({.logit_bias = {{1, 101.0f}}}), UsageError);
  EXPECT_THROW(check_sampling({.top_p = std::nan("")}), UsageError);
}

TEST(LogProbsTest, AreTheLogSoftmaxInOrder) {
  const std::vector<float> logits = random_logits(50, 8);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x));
  LogProbs work;
  const TokenLogProbs got = work.of(logits, 17, 50);
  ASSERT_EQ(got.top.size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    const auto [token, log_prob] = got.top[i];
    EXPECT_NEAR(double(log_prob), double(logits[size_t(token)]) - std::log(sum), 1e-5);
    if (i > 0) EXPECT_LE(log_prob, got.top[i - 1].log_prob);
    if (token == 17) {
      EXPECT_EQ(log_prob, got.token.log_prob) << "the same float in both places";
      EXPECT_EQ(got.rank, int64_t(i) + 1);
    }
  }
  EXPECT_EQ(work.of(logits, 17, 0).top.size(), 0u);
  EXPECT_EQ(work.of(logits, 17, 3).top.size(), 3u);
}

TEST(LogProbsTest, EqualTokensAreInOrderOfTheirIds) {
  const std::vector<float> logits{1, 2, 2, 1};
  LogProbs work;
  const TokenLogProbs got = work.of(logits, 2, 2);
  EXPECT_EQ(got.top[0].token, 1);
  EXPECT_EQ(got.top[1].token, 2);
  EXPECT_EQ(got.rank, 1);
}

}  // namespace
}  // namespace weft
