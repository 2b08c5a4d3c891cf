// CharTokenizer: a table from code points to ids and back.
#include "weft/text/char_tokenizer.h"

#include <fmt/ranges.h>

#include <bit>

#include "weft/text/spelling_decoder.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// The code point at `offset`, which moves past it.
char32_t next_code_point(std::string_view text, size_t& offset) {
  if (const uint8_t byte = uint8_t(text[offset]); byte < 0x80) return ++offset, byte;
  const Utf8CodePoint c = read_utf8(text.substr(offset));
  if (c.state != Utf8State::complete)
    throw EncodeError(fmt::format("there is no UTF-8 character (the byte is 0x{:02X})", uint8_t(text[offset])),
                      offset, "convert the text to UTF-8, or set data.tokenizer = \"byte\"");
  offset += c.length;
  return c.value;
}

}  // namespace

CharTokenizer::CharTokenizer(std::vector<char32_t> code_points, bool has_end_of_document)
    : code_points_(std::move(code_points)), has_end_of_document_(has_end_of_document) {
  check(!code_points_.empty(), "char tokenizer: no characters");
  for (size_t i = 0; i < code_points_.size(); ++i) {
    check(code_points_[i] < 0x110000 && (i == 0 || code_points_[i - 1] < code_points_[i]),
          "char tokenizer: code point {} of the list is not one, or not larger than the one before it", i);
  }
  ids_.assign(code_points_.back() + 1, -1);
  for (size_t i = 0; i < code_points_.size(); ++i) ids_[code_points_[i]] = int32_t(i);
}

std::optional<int32_t> CharTokenizer::end_of_document() const {
  if (!has_end_of_document_) return std::nullopt;
  return int32_t(code_points_.size());
}

void CharTokenizer::encode(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  ids.resize(start + text.size());  // at least a byte a character; writing in place is twice as fast as push_back
  int32_t* out = ids.data() + start;
  try {
    for (size_t offset = 0; offset < text.size();) {
      const size_t at = offset;
      const char32_t c = next_code_point(text, offset);
      const int32_t id = c < ids_.size() ? ids_[c] : -1;
      if (id < 0)
        throw EncodeError(fmt::format("the character {} is not among the {} of the training text",
                                      describe_code_point(c), code_points_.size()),
                          at, "remove it, or train with data.tokenizer = \"byte\", which knows every byte");
      *out++ = id;
    }
  } catch (...) {
    ids.resize(start);
    throw;
  }
  ids.resize(size_t(out - ids.data()));
}

std::unique_ptr<TokenDecoder> CharTokenizer::start_decoding(bool) const {
  return std::make_unique<SpellingDecoder>(*this);
}

std::string CharTokenizer::spelling(int32_t id) const {
  std::string text;
  if (id >= 0 && size_t(id) < code_points_.size()) append_utf8(code_points_[size_t(id)], text);
  return text;
}

std::optional<int32_t> CharTokenizer::find(std::string_view spelling) const {
  if (spelling.empty()) return std::nullopt;
  const Utf8CodePoint c = read_utf8(spelling);
  const bool is_one = c.state == Utf8State::complete && c.length == spelling.size() && c.value < ids_.size();
  if (!is_one || ids_[c.value] < 0) return std::nullopt;
  return ids_[c.value];
}

size_t CharTokenizer::cut(std::string_view text) const { return whole_utf8_prefix(text); }

std::string CharTokenizer::to_json() const {
  std::vector<uint32_t> numbers(code_points_.begin(), code_points_.end());
  return fmt::format(R"({{"type":"char","version":1,"end_of_document":{},"code_points":[{}]}})", has_end_of_document_,
                     fmt::join(numbers, ","));
}

void CodePointSet::add(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_code_point(text, offset);
    seen_[c / 64] |= uint64_t(1) << c % 64;
  }
}

std::vector<char32_t> CodePointSet::sorted() const {
  std::vector<char32_t> all;
  for (size_t word = 0; word < seen_.size(); ++word) {
    for (uint64_t bits = seen_[word]; bits != 0; bits &= bits - 1)
      all.push_back(char32_t(word * 64 + size_t(std::countr_zero(bits))));
  }
  return all;
}

}  // namespace weft
