// TokenMasks: the walk remembers where each byte leads from each state it meets, as a deterministic automaton would.
#include "weft/serve/constrain/token_mask.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/serve/text_stream.h"

namespace weft::constrain {
namespace {

constexpr size_t kLongestToken = 1024;   // a longer one is never allowed
constexpr uint64_t kMostWork = 1 << 25;  // of a matcher, for one mask
constexpr size_t kLongestState = 2048;   // a state that takes more numbers is not remembered
constexpr size_t kMaskBytes = 64 << 20;  // of all masks that are remembered

// The states that one walk meets, numbered, with the steps between them as they were tried.
class Steps {
 public:
  static constexpr int32_t kNowhere = -1;
  Steps(Matcher& matcher, const Matcher::State& start) : matcher_(matcher), begin_(matcher.work()) { number(start); }

  int32_t step(int32_t from, uint8_t byte) {
    const int32_t known = next_[size_t(from)][byte];
    return known != kUntried ? known : try_step(from, byte);
  }

 private:
  static constexpr int32_t kUntried = -2;
  struct Hash {
    size_t operator()(const Matcher::State& state) const {
      uint64_t hash = state.size();
      for (const uint32_t id : state) hash = (hash ^ id) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
      return size_t(hash);
    }
  };

  int32_t try_step(int32_t from, uint8_t byte) {
    int32_t to = kNowhere;
    if (matcher_.step(*states_[size_t(from)], byte, state_)) to = number(state_);
    if (matcher_.work() - begin_ > kMostWork)
      throw UsageError("the output's form is too ambiguous to follow in time");
    return next_[size_t(from)][byte] = to;
  }
  int32_t number(const Matcher::State& state) {
    const auto [entry, is_new] = index_.try_emplace(state, int32_t(states_.size()));
    if (is_new) {
      states_.push_back(&entry->first);
      next_.emplace_back().fill(kUntried);
    }
    return entry->second;
  }

  Matcher& matcher_;
  const uint64_t begin_;
  Matcher::State state_;
  std::unordered_map<Matcher::State, int32_t, Hash> index_;
  std::vector<const Matcher::State*> states_;
  std::vector<std::array<int32_t, 256>> next_;
};

void allow(int32_t token, std::span<uint32_t> mask) { mask[size_t(token) / 32] |= uint32_t(1) << (token % 32); }

}  // namespace

std::vector<std::string> token_bytes(const Tokenizer& tokenizer) {
  const auto is_text = [&](int32_t id) { return !tokenizer.is_special(id) && !tokenizer.spelling(id).empty(); };
  std::vector<std::string> bytes(size_t(tokenizer.vocab_size()));
  TokenSpeller speller(tokenizer, {});
  bool is_first = true;  // a first space depends on what stood before: here, a token that is text
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!is_text(id)) continue;
    if (std::exchange(is_first, false)) speller.advance(id);
    bytes[size_t(id)] = speller.spell(id);
  }
  for (const auto& id : {tokenizer.begin_of_document(), tokenizer.end_of_document()}) {
    if (id) bytes[size_t(*id)].clear();
  }
  return bytes;
}

TokenTrie::TokenTrie(std::span<const std::string> bytes) {
  tokens_.resize(bytes.size());
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_,
                [&](int32_t id) { return bytes[size_t(id)].empty() || bytes[size_t(id)].size() > kLongestToken; });
  const auto text = [&](int32_t id) -> std::string_view { return bytes[size_t(id)]; };
  std::stable_sort(tokens_.begin(), tokens_.end(), [&](int32_t a, int32_t b) { return text(a) < text(b); });
  std::vector<uint32_t> path;  // the nodes down to the last one
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].next = uint32_t(nodes_.size());
  };
  std::string_view before;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = text(tokens_[i]);
    const size_t common =
        size_t(std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin());
    leave(common);
    for (size_t d = common; d < now.size(); ++d) {
      path.push_back(uint32_t(nodes_.size()));
      nodes_.push_back({.byte = uint8_t(now[d]), .depth = uint16_t(d + 1), .next = 0, .first = i, .last = i});
    }
    nodes_[path.back()].last = i + 1;
    deepest_ = std::max(deepest_, now.size());
    before = now;
  }
  leave(0);
}

TokenMasks::TokenMasks(const Tokenizer& tokenizer, int64_t vocab, std::vector<int32_t> end_tokens,
                       const std::map<int32_t, std::string>& control)
    : vocab_(vocab),
      end_tokens_(std::move(end_tokens)),
      bytes_([&] {
        std::vector<std::string> bytes = token_bytes(tokenizer);
        for (std::string& text : bytes) std::replace(text.begin(), text.end(), char(0xFF), char(0xFE));
        for (const auto& [id, text] : control) bytes[size_t(id)] = text;
        bytes.resize(std::min(bytes.size(), size_t(vocab)));
        for (const int32_t end : end_tokens_) {
          if (size_t(end) < bytes.size()) bytes[size_t(end)].clear();
        }
        return bytes;
      }()),
      trie_(bytes_),
      cache_(std::max<size_t>(kMaskBytes / size_t(vocab / 8 + 1), 16)) {}

std::string_view TokenMasks::bytes(int32_t token) const {
  return token >= 0 && size_t(token) < bytes_.size() ? std::string_view(bytes_[size_t(token)]) : std::string_view();
}

bool TokenMasks::is_end(int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

void TokenMasks::fill(Matcher& matcher, const Matcher::State& state, uint64_t grammar, std::span<uint32_t> allowed) {
  check(allowed.size() * 32 >= size_t(vocab_), "{} words of allowed tokens for {} tokens", allowed.size(), vocab_);
  std::vector<uint32_t> numbers{uint32_t(grammar), uint32_t(grammar >> 32)};
  const bool is_remembered = matcher.append_key(state, kLongestState, numbers);
  std::string key;
  std::shared_ptr<const Mask> mask;
  if (is_remembered) {
    key.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint32_t));
    mask = cache_.find(key);
  }
  if (!mask) {
    mask = std::make_shared<const Mask>(walk(matcher, state));
    if (is_remembered) cache_.put(key, mask);
  }
  std::copy(mask->begin(), mask->end(), allowed.begin());
  std::fill(allowed.begin() + std::ptrdiff_t(mask->size()), allowed.end(), 0u);
}

TokenMasks::Mask TokenMasks::walk(Matcher& matcher, const Matcher::State& state) const {
  Mask mask(size_t(vocab_ + 31) / 32);
  const size_t mark = matcher.mark();
  Steps steps(matcher, state);
  std::vector<int32_t> path(trie_.deepest() + 1);  // by depth
  const std::span<const TokenTrie::Node> nodes = trie_.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const int32_t to = steps.step(path[node.depth - 1u], node.byte);
    if (to == Steps::kNowhere) {
      i = node.next;
      continue;
    }
    path[node.depth] = to;
    for (uint32_t t = node.first; t < node.last; ++t) allow(trie_.tokens()[t], mask);
    ++i;
  }
  matcher.release(mark);
  if (state.empty() || Matcher::may_end(state)) {
    for (const int32_t end : end_tokens_) allow(end, mask);
  }
  return mask;
}

}  // namespace weft::constrain
