// PipelineTokenizer: a text through its parts, and back.
#include "weft/text/pipeline/pipeline_tokenizer.h"

#include "weft/text/limits.h"
#include "weft/text/pipeline/replace_all.h"
#include "weft/text/pipeline/word_cache.h"
#include "weft/text/utf8.h"

namespace weft {

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  added_ = AddedTokens(std::move(parts_.added), parts_.normalizer.get(), parts_.origin);
  vocab_size_ = parts_.model->vocabulary().size();
  for (const AddedToken& token : added_.tokens()) {
    if (token.id < 0 || token.id >= kMostTokens)
      throw Error("{}: the added token \"{}\" has the id {}, outside 0 to {}", parts_.origin, token.content, token.id,
                  kMostTokens - 1);
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
  if (parts_.pre_tokenizer) divides_ = parts_.pre_tokenizer->divides();
  if (parts_.normalizer && !parts_.normalizer->parts_at_spaces()) divides_ = {};
  wants_valid_utf8_ = parts_.normalizer ? !parts_.normalizer->takes_any_bytes() : parts_.model->name() != "bpe";
}

// One call of encode.
class PipelineTokenizer::Run {
 public:
  Run(const PipelineTokenizer& tokenizer, const EncodeOptions& options, std::vector<int32_t>& ids)
      : tokenizer_(tokenizer), parts_(tokenizer.parts_), options_(options), ids_(ids), cache_(*parts_.model) {}

  void encode(std::string_view text) {
    tokenizer_.added_.split(
        text, AddedTokens::Which::raw, options_.parse_special, [&](size_t begin, size_t end, int32_t id) {
          if (id >= 0) return ids_.push_back(id);
          at_ = begin;
          const bool is_first = begin == 0;
          stretch(text.substr(begin, end - begin),
                  {.at_start = is_first && !options_.continues, .continues = is_first && options_.continues});
        });
  }
  size_t place() const { return at_; }  // in the text: near which an error happened

 private:
  void stretch(std::string_view text, TextPlace place) {
    std::string normal(text);
    if (parts_.normalizer) parts_.normalizer->apply(normal, place);
    check_growth(text.size(), normal.size());
    tokenizer_.added_.split(
        normal, AddedTokens::Which::normalized, options_.parse_special, [&](size_t begin, size_t end, int32_t id) {
          if (id >= 0) return ids_.push_back(id);
          const TextPlace inner{.at_start = place.at_start && begin == 0, .continues = place.continues && begin == 0};
          pieces(normal.substr(begin, end - begin), inner);
        });
  }

  void pieces(std::string text, TextPlace place) {
    const uint32_t size = uint32_t(text.size());
    Pieces pieces{std::move(text), {{0, size}}, place};
    if (parts_.pre_tokenizer) parts_.pre_tokenizer->apply(pieces);
    for (size_t i = 0; i < pieces.spans.size(); ++i) cache_.encode(pieces[i], ids_);
  }

  const PipelineTokenizer& tokenizer_;
  const TokenizerParts& parts_;
  const EncodeOptions& options_;
  std::vector<int32_t>& ids_;
  WordCache cache_;
  size_t at_ = 0;
};

void PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  if (text.size() > kMostTextBytes)
    throw EncodeError(
        fmt::format("the text has {} bytes, more than the {} encoded at once", text.size(), kMostTextBytes),
        kMostTextBytes, "divide it");
  std::string valid;
  if (wants_valid_utf8_ && valid_utf8_prefix(text) < text.size()) {
    valid = replace_invalid_utf8(text);
    text = valid;
  }
  Run run(*this, options, ids);
  try {
    if (options.add_special) ids.insert(ids.end(), parts_.before.begin(), parts_.before.end());
    run.encode(text);
    if (options.add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  } catch (const Error& error) {
    ids.resize(start);
    throw EncodeError(error.what(), run.place(), "change the text, or use another tokenizer");
  }
}

class PipelineTokenizer::Decoder : public TokenDecoder {
 public:
  Decoder(const PipelineTokenizer& tokenizer, bool keep_special)
      : tokenizer_(tokenizer), keep_special_(keep_special) {
    for (const auto& step : tokenizer.parts_.decoder) steps_.push_back(step->fresh());
  }

  void push(int32_t id, std::string& text) override {
    check(id >= 0, "{} tokenizer: no token has the id {}", tokenizer_.name(), id);
    for (const auto& [token, as] : tokenizer_.parts_.decoded_as) {
      if (token == id) return put(as, 0, text);
    }
    if (!keep_special_ && tokenizer_.is_special(id)) return;
    put(tokenizer_.spelling(id), 0, text);
  }

  void finish(std::string& text) override {
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::string rest;
      steps_[i]->finish(rest);
      if (!rest.empty()) put(std::move(rest), i + 1, text);
    }
  }

 private:
  void put(std::string token, size_t from, std::string& text) {
    const size_t before = token.size();
    for (size_t i = from; i < steps_.size(); ++i) {
      steps_[i]->push(token);
      check_growth(before, token.size());
    }
    text += token;
  }

  const PipelineTokenizer& tokenizer_;
  DecodeSteps steps_;
  bool keep_special_;
};

std::unique_ptr<TokenDecoder> PipelineTokenizer::start_decoding(bool keep_special) const {
  return std::make_unique<Decoder>(*this, keep_special);
}

std::string PipelineTokenizer::spelling(int32_t id) const {
  if (const AddedToken* token = added_.find(id)) return token->content;
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  return vocabulary.has(id) ? std::string(vocabulary.spelling(id)) : std::string();
}

std::optional<int32_t> PipelineTokenizer::find(std::string_view spelling) const {
  if (const AddedToken* token = added_.find(spelling)) return token->id;
  const int32_t id = parts_.model->vocabulary().find(spelling);
  if (id < 0) return std::nullopt;
  return id;
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* token = added_.find(id);
  return token && token->special;
}

namespace {

// Letters, digits and signs: what no normalizer takes away.
bool is_letter_or_digit(char32_t c) {
  const bool is_joiner = c == 0x200C || c == 0x200D;
  return !is_mark(c) && !is_joiner && !is_punctuation(c) && (is_word(c) || is_number(c));
}

bool ends_visibly(std::string_view text) {
  if (text.empty()) return false;
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  const char32_t c = first_code_point(text.substr(at)).value;
  return is_letter_or_digit(c) || is_punctuation(c);
}

// How far back a place to divide a text is looked for; a longer text was looked through when it was shorter.
constexpr size_t kMostLookedThrough = size_t(4) << 20;

}  // namespace

size_t PipelineTokenizer::cut(std::string_view text) const {
  const auto may_be = [&](size_t at) {
    if (divides_.before_space && text[at] == ' ' && ends_visibly(text.substr(0, at))) return true;
    const bool is_behind = divides_.behind_newline && !parts_.normalizer && text[at - 1] == '\n';
    return is_behind && ends_visibly(text.substr(0, at - 1)) &&
           is_letter_or_digit(first_code_point(text.substr(at)).value);
  };
  // The code point at the place is complete, and so is an added token that begins before it.
  const size_t tail = std::min(text.size(), std::max<size_t>(4, added_.longest()));
  const size_t first = text.size() - std::min(text.size(), kMostLookedThrough);
  for (size_t at = text.size() - tail; at > first; --at) {
    if (may_be(at) && !added_.may_span(text, at)) return at;
  }
  return 0;
}

}  // namespace weft
