// The zigzag cut holds every token once and balances work; the plan's spans are every causal pair of a document once.
#include <numeric>
#include <set>

#include "parallel/context_setup.h"
#include "weft/parallel/context/context_plan.h"

namespace weft {
namespace {

TEST(ContextLayoutTest, OneRankHoldsEverythingInOrder) {
  const ContextLayout layout(3, 5, 0, 1);
  std::vector<int64_t> all(15);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(layout.tokens(), all);
  ASSERT_EQ(layout.token_spans().size(), 1u);
  EXPECT_EQ(layout.token_spans()[0].count, 15);
}

TEST(ContextLayoutTest, RanksHoldALowerAndAnUpperChunkOfEveryRow) {
  EXPECT_EQ(ContextLayout(2, 8, 0, 2).tokens(), (std::vector<int64_t>{0, 1, 6, 7, 8, 9, 14, 15}));
  EXPECT_EQ(ContextLayout(2, 8, 1, 2).tokens(), (std::vector<int64_t>{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(ContextLayout(2, 8, 0, 2).token_spans().size(), 3u);  // an upper chunk and the next row touch
  EXPECT_EQ(ContextLayout(2, 8, 1, 2).token_spans().size(), 2u);  // its chunks touch
}

TEST(ContextLayoutTest, EveryTokenIsSomewhereOnce) {
  for (const int size : {1, 2, 3, 4, 6}) {
    std::multiset<int64_t> all;
    for (int rank = 0; rank < size; ++rank) {
      const ContextLayout layout(2, 24, rank, size);
      const std::vector<int64_t> tokens = layout.tokens();
      EXPECT_EQ(int64_t(tokens.size()), layout.num_tokens());
      all.insert(tokens.begin(), tokens.end());
    }
    ASSERT_EQ(all.size(), 48u);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 48u);
  }
}

TEST(ContextLayoutTest, SaysWhatDivides) {
  EXPECT_TRUE(ContextLayout::divides(7, 1));
  EXPECT_TRUE(ContextLayout::divides(12, 3));
  EXPECT_FALSE(ContextLayout::divides(9, 3));
  EXPECT_THROW(ContextLayout(1, 9, 0, 3), Error);
}

// Pairs (query, key) of all tokens that a span lets see each other; dropout's indices are checked on the way.
class Pairs {
 public:
  explicit Pairs(const std::vector<int32_t>& starts) : starts_(starts) {}

  void add(std::span<const AttentionSpan> spans, const std::vector<int64_t>& queries,
           const std::vector<int64_t>& keys) {
    int32_t row = 0;
    for (const AttentionSpan& s : spans) {
      EXPECT_LE(row, s.q_begin) << "query rows ascend";
      row = s.q_end;
      for (int32_t q = s.q_begin; q < s.q_end; ++q) {
        const int64_t query = queries[size_t(q)];
        EXPECT_EQ(s.first_query + q - s.q_begin, kFirstToken + query);
        const int32_t visible = s.causal ? (s.k_end - s.k_begin) - (s.q_end - 1 - q) : s.k_end - s.k_begin;
        for (int32_t j = 0; j < visible; ++j) {
          const int64_t key = keys[size_t(s.k_begin + j)];
          EXPECT_EQ(s.first_key + j, key - sequence_begin(key));
          EXPECT_TRUE(seen_.insert({query, key}).second) << query << " sees " << key << " twice";
        }
      }
    }
  }
  void expect_all() const {
    std::set<std::pair<int64_t, int64_t>> all;
    for (int64_t query = 0; query < starts_.back(); ++query) {
      for (int64_t key = sequence_begin(query); key <= query; ++key) all.insert({query, key});
    }
    EXPECT_EQ(seen_, all);
  }
  size_t count() const { return seen_.size(); }
  static constexpr int64_t kFirstToken = 7000000000;

 private:
  int64_t sequence_begin(int64_t token) const {
    return *(std::upper_bound(starts_.begin(), starts_.end(), token) - 1);
  }
  std::vector<int32_t> starts_;
  std::set<std::pair<int64_t, int64_t>> seen_;
};

class ContextPlanTest : public testing::TestWithParam<int> {
 protected:
  ContextLayout layout(int rank) const { return {kContextRows, kContextSeqLen, rank, GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ContextPlanTest, testing::Values(1, 2, 3, 4));

TEST_P(ContextPlanTest, SpansAreTheCausalPairsOfEveryDocument) {
  std::vector<int64_t> in_order(kContextRows * kContextSeqLen);
  std::iota(in_order.begin(), in_order.end(), 0);
  for (const auto& starts : {whole_rows(), cut_rows()}) {
    Pairs ring(starts), gathered(starts);
    for (int rank = 0; rank < GetParam(); ++rank) {
      ContextPlan plan(layout(rank));
      plan.build(starts, 5);  // a plan may be built again
      plan.build(starts, Pairs::kFirstToken);
      const std::vector<int64_t> mine = layout(rank).tokens();
      for (int step = 0; step < GetParam(); ++step) {
        const std::vector<int64_t> keys = layout((rank - step + GetParam()) % GetParam()).tokens();
        for (int part = 0; part < ContextPlan::kMaxParts; ++part) ring.add(plan.ring(step, part), mine, keys);
      }
      gathered.add(plan.gathered(), mine, in_order);
      Pairs whole(starts);
      whole.add(plan.whole(), in_order, in_order);
      whole.expect_all();
    }
    ring.expect_all();
    gathered.expect_all();
  }
}

TEST_P(ContextPlanTest, RanksSeeAsManyPairs) {
  std::set<size_t> counts;
  for (int rank = 0; rank < GetParam(); ++rank) {
    ContextPlan plan(layout(rank));
    plan.build(whole_rows(), Pairs::kFirstToken);
    Pairs pairs(whole_rows());
    std::vector<int64_t> in_order(kContextRows * kContextSeqLen);
    std::iota(in_order.begin(), in_order.end(), 0);
    pairs.add(plan.gathered(), layout(rank).tokens(), in_order);
    counts.insert(pairs.count());
  }
  EXPECT_EQ(counts.size(), 1u);
}

}  // namespace
}  // namespace weft
