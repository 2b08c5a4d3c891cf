// Pre-tokenizers that look at one character at a time: white space, words, digits, punctuation.
#include "weft/text/pipeline/pre_tokenizer.h"
#include "weft/text/pipeline/split.h"
#include "weft/text/unicode.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// Cuts at the characters of which `Is` holds.
template <class Is>
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(Is is, SplitBehavior behavior, Divides divides) : is_(is), behavior_(behavior), divides_(divides) {}

  void apply(Pieces& pieces) const override {
    std::vector<Span> out;
    std::vector<Stretch> stretches;
    for (const Span span : pieces.spans) {
      stretches.clear();
      uint32_t begin = span.begin, at = span.begin;
      for (std::string_view rest = pieces.view(span); !rest.empty();) {
        const CodePoint c = first_code_point(rest);
        const uint32_t end = at + uint32_t(c.length);
        if (is_(c.value)) {
          if (begin < at) stretches.push_back({{begin, at}, false});
          stretches.push_back({{at, end}, true});
          begin = end;
        }
        at = end;
        rest.remove_prefix(c.length);
      }
      if (begin < at) stretches.push_back({{begin, at}, false});
      split_stretches(stretches, behavior_, false, out);
    }
    pieces.spans = std::move(out);
  }
  Divides divides() const override { return divides_; }

 private:
  Is is_;
  SplitBehavior behavior_;
  Divides divides_;
};

template <class Is>
std::unique_ptr<PreTokenizer> character_split(Is is, SplitBehavior behavior, Divides divides) {
  return std::make_unique<CharacterSplit<Is>>(is, behavior, divides);
}

constexpr Divides kAtWhiteSpace{.keeps = true, .before_space = true, .behind_newline = true};
constexpr Divides kKeeps{.keeps = true};

// Keeps runs of word characters and runs of what is neither that nor white space.
class WhitespacePreTokenizer : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    enum class Kind { space, word, sign };
    std::vector<Span> out;
    for (const Span span : pieces.spans) {
      uint32_t at = span.begin;
      Kind before = Kind::space;
      for (std::string_view rest = pieces.view(span); !rest.empty();) {
        const CodePoint c = first_code_point(rest);
        const Kind kind = is_white_space(c.value) ? Kind::space : is_word(c.value) ? Kind::word : Kind::sign;
        const uint32_t end = at + uint32_t(c.length);
        if (kind != Kind::space) {
          if (kind == before)
            out.back().end = end;
          else
            out.push_back({at, end});
        }
        before = kind;
        at = end;
        rest.remove_prefix(c.length);
      }
    }
    pieces.spans = std::move(out);
  }
  Divides divides() const override { return kAtWhiteSpace; }
};

}  // namespace

std::unique_ptr<PreTokenizer> whitespace_pre_tokenizer() { return std::make_unique<WhitespacePreTokenizer>(); }

std::unique_ptr<PreTokenizer> whitespace_split_pre_tokenizer() {
  return character_split(is_white_space, SplitBehavior::removed, kAtWhiteSpace);
}

std::unique_ptr<PreTokenizer> bert_pre_tokenizer() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(whitespace_split_pre_tokenizer());
  parts.push_back(punctuation_pre_tokenizer(SplitBehavior::isolated));
  return sequence_pre_tokenizer(std::move(parts));
}

std::unique_ptr<PreTokenizer> digits_pre_tokenizer(bool individual) {
  return character_split(is_number, individual ? SplitBehavior::isolated : SplitBehavior::contiguous, kKeeps);
}

std::unique_ptr<PreTokenizer> punctuation_pre_tokenizer(SplitBehavior behavior) {
  const bool is_run = behavior == SplitBehavior::isolated || behavior == SplitBehavior::contiguous;
  return character_split(is_punctuation, behavior, is_run ? kKeeps : Divides{});
}

std::unique_ptr<PreTokenizer> delimiter_pre_tokenizer(char32_t delimiter) {
  return character_split([delimiter](char32_t c) { return c == delimiter; }, SplitBehavior::removed, {});
}

}  // namespace weft
