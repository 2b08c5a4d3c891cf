// Unicode by ICU; ASCII, which most text is, does not reach it.
#include "weft/text/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <memory>

#include "weft/base/error.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

void require(UErrorCode status, std::string_view what) {
  if (U_FAILURE(status)) throw Error("ICU cannot {}: {}", what, u_errorName(status));
}

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::nfc: normalizer = icu::Normalizer2::getNFCInstance(status); break;
    case NormalForm::nfd: normalizer = icu::Normalizer2::getNFDInstance(status); break;
    case NormalForm::nfkc: normalizer = icu::Normalizer2::getNFKCInstance(status); break;
    case NormalForm::nfkd: normalizer = icu::Normalizer2::getNFKDInstance(status); break;
  }
  require(status, "normalize text");
  return *normalizer;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return uint8_t(c) < 0x80; });
}

template <class Map>
std::string case_mapped(std::string_view text, Map&& map) {
  check(text.size() <= size_t(INT32_MAX), "a text of {} bytes is too long to change its case", text.size());
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode status = U_ZERO_ERROR;
  map(icu::StringPiece(text.data(), int32_t(text.size())), sink, nullptr, status);
  require(status, "change the case of text");
  return out;
}

uint32_t category_mask(char32_t c) { return U_MASK(u_charType(UChar32(c))); }

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  check(text.size() <= size_t(INT32_MAX), "a text of {} bytes is too long to normalize", text.size());
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode status = U_ZERO_ERROR;
  normalizer_of(form).normalizeUTF8(0, icu::StringPiece(text.data(), int32_t(text.size())), sink, nullptr, status);
  require(status, "normalize text");
  return out;
}

void append_lowercase(char32_t c, std::string& text) {
  if (c == 0x130) {  // the one letter whose lower case is two code points in every language
    text += "i\xCC\x87";
    return;
  }
  append_utf8(char32_t(u_tolower(UChar32(c))), text);
}

std::string upper_case(std::string_view text) {
  return case_mapped(text, [](auto&&... args) { icu::CaseMap::utf8ToUpper("", 0, args...); });
}

std::string lower_case(std::string_view text) {
  return case_mapped(text, [](auto&&... args) { icu::CaseMap::utf8ToLower("", 0, args...); });
}

std::string title_case(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return case_mapped(text, [](auto&&... args) { icu::CaseMap::utf8ToTitle("", 0, nullptr, args...); });
}

void for_each_grapheme(std::string_view text, FunctionRef<void(std::string_view)> visit) {
  check(text.size() <= size_t(INT32_MAX), "a text of {} bytes is too long to cut into characters", text.size());
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  UText view = UTEXT_INITIALIZER;
  utext_openUTF8(&view, text.data(), int64_t(text.size()), &status);
  if (U_SUCCESS(status)) breaks->setText(&view, status);
  require(status, "find the characters of a text");
  size_t begin = 0;
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    visit(text.substr(begin, size_t(end) - begin));
    begin = size_t(end);
  }
  utext_close(&view);
}

bool is_white_space(char32_t c) {
  return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) : u_isUWhiteSpace(UChar32(c)) != 0;
}
bool is_word(char32_t c) {
  return u_hasBinaryProperty(UChar32(c), UCHAR_ALPHABETIC) || u_hasBinaryProperty(UChar32(c), UCHAR_JOIN_CONTROL) ||
         (category_mask(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}
bool is_mark(char32_t c) { return c >= 0x300 && (category_mask(c) & U_GC_M_MASK) != 0; }
bool is_nonspacing_mark(char32_t c) { return c >= 0x300 && (category_mask(c) & U_GC_MN_MASK) != 0; }
bool is_number(char32_t c) { return (category_mask(c) & U_GC_N_MASK) != 0; }
bool is_punctuation(char32_t c) {
  if (c >= 0x80) return (category_mask(c) & U_GC_P_MASK) != 0;
  return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}
bool is_other(char32_t c) {
  return (category_mask(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK)) != 0;
}
bool is_letter(char32_t c) { return (category_mask(c) & U_GC_L_MASK) != 0; }
bool is_cased(char32_t c) { return u_hasBinaryProperty(UChar32(c), UCHAR_CASED); }
bool is_decimal_digit(char32_t c) { return (category_mask(c) & U_GC_ND_MASK) != 0; }
bool is_digit(char32_t c) {
  const int type = u_getIntPropertyValue(UChar32(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_unassigned(char32_t c) { return (category_mask(c) & U_GC_CN_MASK) != 0; }
bool is_separator(char32_t c) { return (category_mask(c) & U_GC_Z_MASK) != 0; }

}  // namespace weft
