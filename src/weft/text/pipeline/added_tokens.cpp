// AddedTokens: the leftmost, then the longest, as a trie finds them.
#include "weft/text/pipeline/added_tokens.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/text/limits.h"
#include "weft/text/pipeline/sentencepiece_normalizer.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// The last code point of a text that is not empty.
CodePoint last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  return first_code_point(text.substr(at));
}

size_t spaces_before(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const CodePoint c = last_code_point(text.substr(0, end));
    if (!is_white_space(c.value)) break;
    end -= c.length;
  }
  return end;
}

size_t spaces_behind(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const CodePoint c = first_code_point(text.substr(length));
    if (!is_white_space(c.value)) break;
    length += c.length;
  }
  return length;
}

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  const bool begins = begin == 0 || !is_word(last_code_point(text.substr(0, begin)).value);
  return begins && (end == text.size() || !is_word(first_code_point(text.substr(end)).value));
}

// Behind the first character, which may be a mark that the normalizer put before it.
bool has_space_within(std::string_view content) {
  for (size_t at = 0; at < content.size(); at += first_code_point(content.substr(at)).length) {
    const bool is_space = is_white_space(first_code_point(content.substr(at)).value);
    if (at > 0 && (is_space || content.substr(at).starts_with(kSpaceMark))) return true;
  }
  return false;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, std::string_view origin)
    : tokens_(std::move(tokens)) {
  std::vector<std::string> contents;  // as looked for
  contents.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.content.empty() || token.content.size() > kMostAddedTokenBytes)
      throw Error("{}: the added token {} has {} bytes, and 1 to {} are allowed", origin, token.id,
                  token.content.size(), kMostAddedTokenBytes);
    contents.push_back(token.content);
    if (token.normalized && normalizer) {
      normalizer->apply(contents.back(), {});
      spans_normalized_space_ |= has_space_within(contents.back());
    }
    by_id_.emplace(token.id, i);
    by_content_.emplace(token.content, i);
    longest_ = std::max({longest_, token.content.size(), contents.back().size()});
    takes_spaces_ |= token.lstrip || token.rstrip;
  }
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i)
    (tokens_[i].normalized ? normalized : raw).emplace_back(contents[i], int32_t(i));
  raw_ = ByteTrie(std::move(raw));
  normalized_ = ByteTrie(std::move(normalized));
}

void AddedTokens::split(std::string_view text, Which which, bool parse_special,
                        FunctionRef<void(size_t, size_t, int32_t)> visit) const {
  const ByteTrie& trie = which == Which::raw ? raw_ : normalized_;
  size_t done = 0;  // up to here the text was given to visit
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    const ByteTrie::Match match =
        trie.may_begin_with(text[at]) ? trie.longest_prefix(text.substr(at)) : ByteTrie::Match{};
    if (match.length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match.length;
    at = end;
    const AddedToken& token = tokens_[size_t(match.value)];
    if (begin < done || (token.special && !parse_special)) continue;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(done, spaces_before(text.substr(0, begin)));
    if (token.rstrip) end += spaces_behind(text.substr(end));
    if (done < begin) visit(done, begin, -1);
    visit(begin, end, token.id);
    done = end;
  }
  if (done < text.size()) visit(done, text.size(), -1);
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::may_span(std::string_view text, size_t at) const {
  if (takes_spaces_ || spans_normalized_space_) return true;
  for (size_t begin = at - std::min(at, longest_); begin < at; ++begin) {
    for (const ByteTrie* trie : {&raw_, &normalized_}) {
      if (trie->may_begin_with(text[begin]) && begin + trie->longest_prefix(text.substr(begin)).length > at)
        return true;
    }
  }
  return false;
}

}  // namespace weft
