// BpeTrainer: the merges of a naive count, runs, limits, and the same file whatever the order of the text.
#include "weft/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "weft/text/bpe_merges.h"

namespace weft {
namespace {

using Merges = std::vector<std::pair<int32_t, int32_t>>;

// The definition: count all pairs anew for every merge.
Merges naive(const std::vector<BpeMerges::Word>& words, int64_t min_count, int wanted) {
  std::vector<std::vector<int32_t>> symbols;
  std::map<std::string, int32_t> ids;
  std::map<int32_t, std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) spellings[byte] = std::string(1, char(uint8_t(byte)));
  for (const auto& [id, spelling] : spellings) ids[spelling] = id;
  for (const auto& word : words) {
    symbols.emplace_back();
    for (const char c : word.bytes) symbols.back().push_back(uint8_t(c));
  }
  Merges merges;
  while (int(merges.size()) < wanted) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (size_t w = 0; w < words.size(); ++w) {
      for (size_t i = 0; i + 1 < symbols[w].size(); ++i) counts[{symbols[w][i], symbols[w][i + 1]}] += words[w].count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = min_count - 1;
    for (const auto& [pair, count] : counts) {
      if (count > most) best = pair, most = count;
    }
    if (most < min_count) break;
    const std::string spelling = spellings[best.first] + spellings[best.second];
    const int32_t id = ids.emplace(spelling, int32_t(ids.size())).first->second;
    spellings[id] = spelling;
    for (auto& word : symbols) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool is_pair = i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        merged.push_back(is_pair ? id : word[i]);
        i += is_pair;
      }
      word = merged;
    }
    merges.push_back(best);
  }
  return merges;
}

TEST(BpeMerges, AreThoseOfANaiveCount) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts;
    for (int w = 0; w < 12; ++w) {
      texts.emplace_back();
      const size_t length = random() % 14;
      for (size_t i = 0; i < length; ++i) texts.back() += char('a' + random() % (1 + round % 4));
    }
    std::vector<BpeMerges::Word> words;
    for (const std::string& text : texts) words.push_back({text, 1 + int64_t(random() % 3)});
    BpeMerges learned(words, 2, 1000);
    Merges merges;
    while (const auto merge = learned.next()) merges.emplace_back(merge->left, merge->right);
    EXPECT_EQ(merges, naive(words, 2, 1000));
  }
}

TEST(BpeMerges, KeepTokensShort) {
  BpeMerges learned({{"aaaaaaaaaaaaaaaa", 5}}, 1, 4);
  while (learned.next()) {
  }
  EXPECT_EQ(learned.vocabulary().longest(), 4u);
}

std::string train(BpeTrainer& trainer) {
  return trainer.train([](int64_t, int64_t) {});
}

TEST(BpeTrainer, MakesATokenizer) {
  BpeTrainer trainer({.vocab_size = 270, .control = {"<|end|>", "<|pad|>"}});
  trainer.add("low low low lower lower newest newest newest widest widest\nhéhé");
  const auto tokenizer = parse_tokenizer(train(trainer), "new");
  EXPECT_EQ(tokenizer->vocab_size(), 270);
  EXPECT_EQ(tokenizer->find("<|end|>"), 268);
  EXPECT_EQ(tokenizer->spelling(256 + 0), "es") << "of the pairs that come most often, that of the lowest ids";
  const std::string text = "lowest new\n\nhé \xFF<|pad|>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode("low newest").size(), 6u);
  EXPECT_EQ(tokenizer->encode("<|pad|>", {.parse_special = true}), std::vector<int32_t>{269});
}

TEST(BpeTrainer, GivesTheSameFileForTheSameWords) {
  BpeTrainer one({.vocab_size = 300}), other({.vocab_size = 300});
  const std::string text = "the cat sat on the mat and the dog sat on the cat";
  one.add(text);
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    length = other.cut(std::string_view(text).substr(at, 20));
    if (length == 0) length = text.size() - at;
    other.add(std::string_view(text).substr(at, length));
  }
  EXPECT_EQ(train(one), train(other));
}

TEST(BpeTrainer, StopsWhenNothingRepeats) {
  BpeTrainer trainer({.vocab_size = 10'000});
  trainer.add("abab");
  EXPECT_EQ(parse_tokenizer(train(trainer), "new")->vocab_size(), 256 + 1 + 1);
}

TEST(BpeTrainer, TakesOneLongWord) {
  BpeTrainer trainer({.vocab_size = 300});
  trainer.add(std::string(1 << 20, 'a'));
  EXPECT_EQ(parse_tokenizer(train(trainer), "new")->encode(std::string(128, 'a')).size(), 1u);
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  EXPECT_THROW(BpeTrainer({.vocab_size = 256}), UsageError);
  EXPECT_THROW(BpeTrainer({.vocab_size = 1 << 23}), UsageError);
  EXPECT_THROW(BpeTrainer({.vocab_size = 300, .pattern = "("}), Error);
}

}  // namespace
}  // namespace weft
