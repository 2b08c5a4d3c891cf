// Pre-tokenizers by patterns, for vocabularies of bytes and of words with a mark for their space, and in sequence.
#include "weft/text/pipeline/pre_tokenizer.h"

#include "weft/base/error.h"
#include "weft/text/pipeline/byte_alphabet.h"
#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/pipeline/replace_all.h"
#include "weft/text/pipeline/split.h"

namespace weft {
namespace {

// Cuts every piece at what `matches(piece, visit(begin, end))` finds in it.
template <class Matches>
void split_at(Pieces& pieces, SplitBehavior behavior, bool invert, Matches matches) {
  std::vector<Span> out;
  std::vector<Stretch> stretches;
  for (const Span span : pieces.spans) {
    stretches.clear();
    uint32_t from = span.begin;
    matches(pieces.view(span), [&](size_t first, size_t last) {
      const uint32_t begin = span.begin + uint32_t(first), end = span.begin + uint32_t(last);
      if (from < begin) stretches.push_back({{from, begin}, false});
      stretches.push_back({{begin, end}, true});
      from = end;
    });
    if (from < span.end) stretches.push_back({{from, span.end}, false});
    split_stretches(stretches, behavior, invert, out);
  }
  pieces.spans = std::move(out);
}

class RegexSplit : public PreTokenizer {
 public:
  RegexSplit(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {
    if (behavior == SplitBehavior::isolated || (behavior == SplitBehavior::removed && invert))
      divides_ = divides_of_pattern(pattern_.pattern());
  }
  void apply(Pieces& pieces) const override {
    RegexMatcher matcher(pattern_);
    split_at(pieces, behavior_, invert_,
             [&](std::string_view piece, auto visit) { matcher.for_each_match(piece, visit); });
  }
  Divides divides() const override { return divides_; }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
  Divides divides_;
};

class StringSplit : public PreTokenizer {
 public:
  StringSplit(std::string pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    split_at(pieces, behavior_, invert_, [&](std::string_view piece, auto visit) {
      if (pattern_.empty()) return;
      for (size_t at = 0; (at = piece.find(pattern_, at)) != piece.npos; at += pattern_.size())
        visit(at, at + pattern_.size());
    });
  }
  bool cuts_only_at_spaces() const override { return pattern_.find(' ') != std::string::npos; }

 private:
  std::string pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Writes every piece anew: each(piece, whether it begins the text, the new text).
template <class Each>
void rewrite_pieces(Pieces& pieces, Each each) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const uint32_t begin = uint32_t(text.size());
    each(pieces[i], i == 0, text);
    check_growth(pieces.text.size(), text.size());
    pieces.spans[i] = {begin, uint32_t(text.size())};
  }
  pieces.text = std::move(text);
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_ = split_pre_tokenizer(Regex(kGpt2Pattern, "ByteLevel"), SplitBehavior::isolated, false);
  }
  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rewrite_pieces(pieces, [&](std::string_view piece, bool is_first, std::string& text) {
        const bool continues = is_first && pieces.place.continues;
        if (!piece.starts_with(' ') && !continues) text += ' ';
        text += piece;
      });
    }
    if (split_) split_->apply(pieces);
    rewrite_pieces(pieces, [&](std::string_view piece, bool, std::string& text) {
      for (const char byte : piece) ByteAlphabet::get().append(uint8_t(byte), text);
    });
  }
  Divides divides() const override { return split_ ? split_->divides() : Divides{.keeps = !add_prefix_space_}; }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PreTokenizer> split_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), splits_(split) {
    if (split) split_ = split_pre_tokenizer(replacement_, SplitBehavior::merged_with_next, false);
  }
  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](std::string_view piece, bool is_first, std::string& text) {
      const bool is_wanted =
          scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && is_first && pieces.place.at_start);
      const bool continues = is_first && pieces.place.continues;
      if (is_wanted && !continues && !piece.starts_with(' ') && !piece.starts_with(replacement_))
        text += replacement_;
      for (const char c : piece) {
        if (c == ' ')
          text += replacement_;
        else
          text += c;
      }
    });
    if (split_) split_->apply(pieces);
  }
  Divides divides() const override { return {.keeps = true, .before_space = splits_}; }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool splits_;
  std::unique_ptr<PreTokenizer> split_;
};

class WordStartPreTokenizer : public PreTokenizer {
 public:
  explicit WordStartPreTokenizer(std::string space) : space_(std::move(space)) {}
  void apply(Pieces& pieces) const override {
    std::vector<Span> out;
    for (const Span span : pieces.spans) {
      const std::string_view piece = pieces.view(span);
      size_t begin = 0;
      for (size_t at = 0; (at = piece.find(space_, at)) != piece.npos;) {
        if (at > begin) out.push_back({span.begin + uint32_t(begin), span.begin + uint32_t(at)});
        begin = at;
        while (piece.substr(at).starts_with(space_)) at += space_.size();
      }
      if (begin < piece.size()) out.push_back({span.begin + uint32_t(begin), span.end});
    }
    pieces.spans = std::move(out);
  }
  Divides divides() const override { return {.keeps = true, .before_space = true}; }

 private:
  std::string space_;
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    const size_t before = pieces.text.size();
    for (const auto& part : parts_) {
      part->apply(pieces);
      check_growth(before, pieces.text.size());
    }
  }
  // Where one part cuts, what later ones do is done on each side alone.
  Divides divides() const override {
    Divides all{.keeps = true};
    for (const auto& part : parts_) {
      const Divides own = part->divides();
      if (all.keeps) {
        all.before_space |= own.before_space;
        all.behind_newline |= own.behind_newline;
      }
      all.keeps &= own.keeps;
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> split_pre_tokenizer(Regex pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<RegexSplit>(std::move(pattern), behavior, invert);
}
std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::string pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<StringSplit>(std::move(pattern), behavior, invert);
}
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, use_regex);
}
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<MetaspacePreTokenizer>(std::move(replacement), scheme, split);
}
std::unique_ptr<PreTokenizer> word_start_pre_tokenizer(std::string space) {
  return std::make_unique<WordStartPreTokenizer>(std::move(space));
}
std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace weft
