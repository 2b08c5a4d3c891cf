// TokenMasks: which tokens of a vocabulary may come next, where a Matcher tells which bytes may.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/constrain/lru_cache.h"
#include "weft/serve/constrain/matcher.h"
#include "weft/text/tokenizer.h"

namespace weft::constrain {

// What each token adds to a text that goes on; empty for control tokens and ids without a token.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer);

// All tokens by their bytes: the nodes of a trie in the order of a walk through it, so that what follows a byte that
// cannot come is passed over in one step.
class TokenTrie {
 public:
  // By id; empty ones are left out.
  explicit TokenTrie(std::span<const std::string> bytes);

  struct Node {
    uint8_t byte;
    uint16_t depth;        // 1 for a first byte
    uint32_t next;         // the first node that is not below this one
    uint32_t first, last;  // its tokens, in tokens(): first <= i < last
  };
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  size_t deepest() const { return deepest_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  size_t deepest_ = 0;
};

// Of one vocabulary, for every grammar; may be used by many threads.
class TokenMasks {
 public:
  // vocab: of the model, which may have more ids than the tokenizer. control: control tokens that forms may ask for,
  // by bytes that begin with one no text has, 0xFF; in tokens that are text it becomes another such byte.
  TokenMasks(const Tokenizer& tokenizer, int64_t vocab, std::vector<int32_t> end_tokens,
             const std::map<int32_t, std::string>& control = {});

  // Writes all words. The end tokens are allowed where the state may end, and in the one behind an end, which is
  // empty; nothing is where no token spells a way on. `grammar` is the number of the matcher's grammar. Throws
  // UsageError when the grammar is too ambiguous to do this in reasonable time.
  void fill(Matcher& matcher, const Matcher::State& state, uint64_t grammar, std::span<uint32_t> allowed);

  std::string_view bytes(int32_t token) const;
  bool is_end(int32_t token) const;
  bool has_ends() const { return !end_tokens_.empty(); }
  int64_t vocab() const { return vocab_; }
  size_t num_cached() const { return cache_.size(); }

 private:
  using Mask = std::vector<uint32_t>;
  Mask walk(Matcher& matcher, const Matcher::State& state) const;

  int64_t vocab_;
  std::vector<int32_t> end_tokens_;
  std::vector<std::string> bytes_;
  TokenTrie trie_;
  LruCache<std::shared_ptr<const Mask>> cache_;
};

}  // namespace weft::constrain
