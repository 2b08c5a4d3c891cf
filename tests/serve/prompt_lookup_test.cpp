// Draft tokens by lookup: the longest agreement wins, then the newest place.
#include "weft/serve/prompt_lookup.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Tokens = std::vector<int32_t>;
struct Lookup {
  const char* name;
  Tokens tokens;
  int64_t most;
  Tokens draft_tokens;
};
void PrintTo(const Lookup& l, std::ostream* out) { *out << l.name; }
class PromptLookupTest : public testing::TestWithParam<Lookup> {};

TEST_P(PromptLookupTest, SaysWhatFollowedBefore) {
  Tokens draft_tokens{-1};
  propose_by_lookup(GetParam().tokens, GetParam().most, draft_tokens);
  Tokens want{-1};
  want.insert(want.end(), GetParam().draft_tokens.begin(), GetParam().draft_tokens.end());
  EXPECT_EQ(draft_tokens, want);
}

INSTANTIATE_TEST_SUITE_P(Texts, PromptLookupTest,
                         testing::Values(Lookup{"nothing", {}, 4, {}}, Lookup{"one", {1}, 4, {}},
                                         Lookup{"two", {1, 1}, 4, {}}, Lookup{"no_repetition", {1, 2, 3, 4}, 4, {}},
                                         Lookup{"one_token_is_too_little", {1, 2, 3, 1}, 4, {}},
                                         Lookup{"two_tokens_agree", {1, 2, 3, 4, 1, 2}, 9, {3, 4, 1, 2}},
                                         Lookup{"at_most", {1, 2, 3, 4, 1, 2}, 2, {3, 4}},
                                         Lookup{"none_wanted", {1, 2, 3, 1, 2}, 0, {}},
                                         Lookup{"fewer_than_none", {1, 2, 3, 1, 2}, -1, {}},
                                         Lookup{"the_newer_place", {1, 2, 5, 1, 2, 6, 1, 2}, 1, {6}},
                                         Lookup{"the_longer_agreement", {0, 1, 2, 5, 9, 1, 2, 6, 0, 1, 2}, 1, {5}},
                                         Lookup{"overlapping", {7, 7, 7}, 3, {7}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
