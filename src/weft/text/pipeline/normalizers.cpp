// Normalizers of code points: forms of Unicode, case, accents, white space at the ends, and BERT's mix of them.
#include "weft/text/pipeline/normalizer.h"
#include "weft/text/pipeline/replace_all.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// Builds the text anew: each(code point, its bytes, the new text).
template <class Each>
void rewrite(std::string& text, Each each) {
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    each(c.value, rest.substr(0, c.length), out);
    rest.remove_prefix(c.length);
  }
  text = std::move(out);
}

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  void apply(std::string& text, TextPlace) const override { text = normalized(text, form_); }

 private:
  NormalForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(std::string& text, TextPlace) const override {
    rewrite(text, [](char32_t c, std::string_view, std::string& out) { append_lowercase(c, out); });
  }
};

class StripAccentsNormalizer : public Normalizer {
 public:
  void apply(std::string& text, TextPlace) const override {
    rewrite(text, [](char32_t c, std::string_view bytes, std::string& out) {
      if (!is_mark(c)) out += bytes;
    });
  }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, TextPlace place) const override {
    size_t begin = 0, end = 0, at = 0;
    bool has_text = place.continues;
    for (std::string_view rest = text; !rest.empty();) {
      const CodePoint c = first_code_point(rest);
      const bool is_space = is_white_space(c.value);
      if (!is_space && !has_text) begin = at;
      has_text |= !is_space;
      at += c.length;
      if (!is_space) end = at;
      rest.remove_prefix(c.length);
    }
    if (!has_text) begin = left_ ? text.size() : 0;
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    text = begin < end ? text.substr(begin, end - begin) : std::string();
  }

 private:
  bool left_, right_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text, TextPlace place) const override {
    if (!text.empty() && !place.continues) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceString : public Normalizer {
 public:
  ReplaceString(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, TextPlace) const override { replace_all(text, pattern_, content_); }
  bool parts_at_spaces() const override { return pattern_.find(' ', 1) == std::string::npos; }

 private:
  std::string pattern_, content_;
};

class ReplaceRegex : public Normalizer {
 public:
  ReplaceRegex(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, TextPlace) const override {
    std::string out;
    size_t from = 0;
    RegexMatcher(pattern_).for_each_match(text, [&](size_t begin, size_t end) {
      out.append(text, from, begin - from);
      out += content_;
      check_growth(text.size(), out.size());
      from = end;
    });
    out.append(text, from, std::string::npos);
    text = std::move(out);
  }
  bool parts_at_spaces() const override { return false; }  // who knows what it looks at

 private:
  Regex pattern_;
  std::string content_;
};

bool is_chinese(char32_t c) {  // blocks of ideographs, as BERT lists them
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizing& options) : options_(options) {}
  void apply(std::string& text, TextPlace) const override {
    rewrite(text, [&](char32_t c, std::string_view bytes, std::string& out) {
      if (options_.clean_text) {
        const bool is_line = c == '\t' || c == '\n' || c == '\r';
        if (!is_line && (c == 0 || c == 0xFFFD || is_other(c))) return;
        if (is_white_space(c)) bytes = " ";
      }
      const bool is_apart = options_.handle_chinese_chars && is_chinese(c);
      if (is_apart) out += ' ';
      out += bytes;
      if (is_apart) out += ' ';
    });
    if (options_.strip_accents) {
      text = normalized(text, NormalForm::nfd);
      rewrite(text, [](char32_t c, std::string_view bytes, std::string& out) {
        if (!is_nonspacing_mark(c)) out += bytes;
      });
    }
    if (options_.lowercase) LowercaseNormalizer().apply(text, {});
  }

 private:
  BertNormalizing options_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text, TextPlace place) const override {
    const size_t before = text.size();
    for (const auto& part : parts_) {
      part->apply(text, place);
      check_growth(before, text.size());
    }
  }
  bool parts_at_spaces() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->parts_at_spaces(); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> unicode_normalizer(NormalForm form) { return std::make_unique<UnicodeNormalizer>(form); }
std::unique_ptr<Normalizer> lowercase_normalizer() { return std::make_unique<LowercaseNormalizer>(); }
std::unique_ptr<Normalizer> strip_accents_normalizer() { return std::make_unique<StripAccentsNormalizer>(); }
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<Normalizer> replace_normalizer(std::string pattern, std::string content) {
  return std::make_unique<ReplaceString>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> replace_normalizer(Regex pattern, std::string content) {
  return std::make_unique<ReplaceRegex>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> bert_normalizer(const BertNormalizing& options) {
  return std::make_unique<BertNormalizer>(options);
}
std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

}  // namespace weft
