// What find_tokens tells of a row is enough to choose as from the whole row.
#include "serve/choice_cases.h"

namespace weft {
namespace {

class TokenChoiceTest : public testing::TestWithParam<ChoiceCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TokenChoiceTest, testing::ValuesIn(kChoiceCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(TokenChoiceTest, NeedsNoMoreThanWhatIsFound) {
  const ChoiceCase& c = GetParam();
  Workbench bench;
  const Tensor logits = Choices(c, 1).logits(bench);
  const std::vector<int32_t> prompt{1, 4, 4}, answer{2, 3, 3};
  std::vector<uint32_t> mask(size_t(c.vocab + 31) / 32, 0x6db6db6d);
  SamplingPast past{.prompt = prompt, .answer = answer};
  if (c.has_mask) past.allowed = mask;
  const std::span row(logits.data<float>(), size_t(c.vocab));
  for (uint64_t position = 0; position < 50; ++position) {
    Sampler sampler(c.options);
    TokenWish wish;
    if (!sampler.wish(position, past, c.vocab, wish)) {
      EXPECT_TRUE(c.comes_whole);
      return;
    }
    const auto whole = [&]() -> int32_t {
      try {
        return sampler.choose(row, position, past);
      } catch (const Error&) {
        return -1;
      }
    };
    const int32_t want = whole();
    const Tensor changed = bench.copy(logits);
    wish.query.mask = wish.mask.empty() ? -1 : 0;
    const FindTokensArgs args{.found = bench.empty(DType::u8, {1, int64_t(sizeof(FoundTokens))}),
                              .logits = changed,
                              .vocab = c.vocab,
                              .queries = {&wish.query, 1},
                              .changes = wish.changes,
                              .masks = wish.mask};
    reference_kernels().find_tokens(bench.stream, args);
    FoundTokens found;
    std::memcpy(&found, args.found.raw(), sizeof(found));
    if (found.token == FoundTokens::kManyTokens) {
      EXPECT_TRUE(c.comes_whole);
      EXPECT_EQ(sampler.choose_changed({changed.data<float>(), row.size()}, position), want);
    } else if (found.token < 0) {
      EXPECT_EQ(want, -1);
      EXPECT_THROW(Sampler::choose(found), Error);
    } else {
      EXPECT_EQ(Sampler::choose(found), want) << position;
    }
  }
}

TEST(FindTokensTest, RefusesWhatIsNotThere) {
  Workbench bench;
  const Tensor logits = bench.random(DType::f32, {2, 5}, "logits");
  const auto find = [&](TokenQuery query, int64_t vocab) {
    const FindTokensArgs args{.found = bench.empty(DType::u8, {1, int64_t(sizeof(FoundTokens))}),
                              .logits = logits,
                              .vocab = vocab,
                              .queries = {&query, 1}};
    for (const Kernels* kernels : {&reference_kernels(), &cpu_kernels(), &meta_kernels()})
      kernels->find_tokens(bench.stream, args);
  };
  find({}, 5);
  EXPECT_THROW(find({}, 6), Error);
  EXPECT_THROW(find({.row = 2}, 5), Error);
  EXPECT_THROW(find({.num_biases = 1}, 5), Error);
  EXPECT_THROW(find({.mask = 0}, 5), Error);
  EXPECT_THROW(find({.want = TokenQuery::Want::given}, 5), Error);
  EXPECT_THROW(find({.want = TokenQuery::Want::given, .given = 4}, 4), Error);
}

TEST(PlaceTokensTest, PutsFoundOnesAmongOthers) {
  Workbench bench;
  const Tensor found = bench.empty(DType::u8, {2, int64_t(sizeof(FoundTokens))});
  for (int32_t i = 0; i < 2; ++i) reinterpret_cast<FoundTokens*>(found.raw())[i] = {.token = 70 + i};
  const auto place = [&](const Kernels& kernels, std::vector<int32_t> said) {
    const Tensor ids = bench.empty(DType::i32, {int64_t(said.size())});
    kernels.place_tokens(bench.stream, ids, said.data(), found);
    return std::vector<int32_t>(ids.data<int32_t>(), ids.data<int32_t>() + said.size());
  };
  for (const Kernels* kernels : {&reference_kernels(), &cpu_kernels()}) {
    EXPECT_EQ(place(*kernels, {5, -2, 0, -1, -2}), (std::vector<int32_t>{5, 71, 0, 70, 71}));
    EXPECT_THROW(place(*kernels, {5, -3}), Error);
  }
}

TEST(PastTokensTest, FollowDraftsThatWereNotAccepted) {
  PastTokens past;
  const std::vector<int32_t> prompt{7, 8, 7};
  const auto counts = [&](const std::vector<int32_t>& answer) {
    past.follow(prompt, answer);
    std::vector<std::string> told;
    for (const PastTokens::Entry& e : past.entries())
      told.push_back(fmt::format("{}:{}{}", e.token, e.in_answer, e.in_prompt ? "p" : ""));
    return told;
  };
  using Told = std::vector<std::string>;
  EXPECT_EQ(counts({}), (Told{"7:0p", "8:0p"}));
  EXPECT_EQ(counts({8, 9, 9, 5}), (Told{"7:0p", "8:1p", "9:2", "5:1"}));
  EXPECT_EQ(counts({8, 9, 4}), (Told{"7:0p", "8:1p", "9:1", "5:0", "4:1"}));
  EXPECT_EQ(counts({}), (Told{"7:0p", "8:0p", "9:0", "5:0", "4:0"}));
}

}  // namespace
}  // namespace weft
