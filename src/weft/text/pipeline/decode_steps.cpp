// Decode steps, each with the little state that the text so far leaves behind.
#include "weft/text/pipeline/decode_steps.h"

#include <algorithm>

#include "weft/text/pipeline/byte_alphabet.h"
#include "weft/text/pipeline/replace_all.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft {
namespace {

// A step that copies its settings, and forgets, for another text.
template <class Step>
class Renewable : public DecodeStep {
 public:
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<Step>(static_cast<const Step&>(*this).settings());
  }
};

struct NoSettings {};

class ByteLevelDecoder : public Renewable<ByteLevelDecoder> {
 public:
  explicit ByteLevelDecoder(NoSettings = {}) {}
  NoSettings settings() const { return {}; }
  void push(std::string& token) override {
    std::string bytes;
    if (ByteAlphabet::get().append_bytes(token, bytes)) token = std::move(bytes);
  }
};

class ByteFallbackDecoder : public Renewable<ByteFallbackDecoder> {
 public:
  explicit ByteFallbackDecoder(NoSettings = {}) {}
  NoSettings settings() const { return {}; }
  void push(std::string& token) override {
    if (const int byte = byte_of_spelling(token); byte >= 0) token = std::string(1, char(uint8_t(byte)));
  }
};

struct ReplaceSettings {
  std::string pattern, content;
};

class ReplaceDecoder : public Renewable<ReplaceDecoder> {
 public:
  explicit ReplaceDecoder(ReplaceSettings settings) : settings_(std::move(settings)) {}
  const ReplaceSettings& settings() const { return settings_; }
  void push(std::string& token) override { replace_all(token, settings_.pattern, settings_.content); }

 private:
  ReplaceSettings settings_;
};

struct MetaspaceSettings {
  std::string replacement;
  bool drops_first;
};

class MetaspaceDecoder : public Renewable<MetaspaceDecoder> {
 public:
  explicit MetaspaceDecoder(MetaspaceSettings settings) : settings_(std::move(settings)) {}
  const MetaspaceSettings& settings() const { return settings_; }
  void push(std::string& token) override {
    replace_all(token, settings_.replacement, is_first_ && settings_.drops_first ? "" : " ");
    is_first_ = false;
  }

 private:
  MetaspaceSettings settings_;
  bool is_first_ = true;
};

struct WordPieceSettings {
  std::string prefix;
  bool cleanup;
};

class WordPieceDecoder : public Renewable<WordPieceDecoder> {
 public:
  explicit WordPieceDecoder(WordPieceSettings settings) : settings_(std::move(settings)) {}
  const WordPieceSettings& settings() const { return settings_; }
  void push(std::string& token) override {
    if (!is_first_) {
      if (token.starts_with(settings_.prefix))
        token.erase(0, settings_.prefix.size());
      else
        token.insert(0, " ");
    }
    is_first_ = false;
    if (!settings_.cleanup) return;
    // Spaces that English does not write before signs and shortened words.
    static constexpr std::pair<std::string_view, std::string_view> kTidied[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [pattern, content] : kTidied) replace_all(token, pattern, content);
  }

 private:
  WordPieceSettings settings_;
  bool is_first_ = true;
};

// Holds a token back, since only the next one tells that it was not the last.
class SuffixDecoder : public Renewable<SuffixDecoder> {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  const std::string& settings() const { return suffix_; }
  void push(std::string& token) override {
    std::swap(token, held_);
    replace_all(token, suffix_, " ");
  }
  void finish(std::string& rest) override {
    replace_all(held_, suffix_, "");
    rest = std::move(held_);
  }

 private:
  std::string suffix_, held_;
};

class SpaceBetweenDecoder : public Renewable<SpaceBetweenDecoder> {
 public:
  explicit SpaceBetweenDecoder(NoSettings = {}) {}
  NoSettings settings() const { return {}; }
  void push(std::string& token) override {
    if (!is_first_) token.insert(0, " ");
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
};

struct StripSettings {
  std::string content;
  size_t start, stop;
};

class TokenStripDecoder : public Renewable<TokenStripDecoder> {
 public:
  explicit TokenStripDecoder(StripSettings settings) : settings_(std::move(settings)) {}
  const StripSettings& settings() const { return settings_; }
  void push(std::string& token) override {
    const std::string& content = settings_.content;
    for (size_t i = 0; i < settings_.start && token.starts_with(content); ++i) token.erase(0, content.size());
    for (size_t i = 0; i < settings_.stop && token.ends_with(content); ++i)
      token.resize(token.size() - content.size());
  }

 private:
  StripSettings settings_;
};

class TextStripDecoder : public Renewable<TextStripDecoder> {
 public:
  explicit TextStripDecoder(StripSettings settings) : settings_(std::move(settings)), to_strip_(settings_.start) {}
  const StripSettings& settings() const { return settings_; }
  void push(std::string& token) override {
    const std::string& content = settings_.content;
    for (; to_strip_ > 0 && token.starts_with(content); --to_strip_) token.erase(0, content.size());
    if (token.empty()) return;
    to_strip_ = 0;
    token.insert(0, held_);
    held_.clear();
    for (size_t i = 0; i < settings_.stop && token.ends_with(content); ++i) {
      token.resize(token.size() - content.size());
      held_ += content;
    }
  }
  void finish(std::string& rest) override { rest.clear(); }

 private:
  StripSettings settings_;
  size_t to_strip_;
  std::string held_;  // at the end of the text so far, and to be dropped if it stays there
};

}  // namespace

std::unique_ptr<DecodeStep> byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }
std::unique_ptr<DecodeStep> byte_fallback_decoder() { return std::make_unique<ByteFallbackDecoder>(); }
std::unique_ptr<DecodeStep> replace_decoder(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(ReplaceSettings{std::move(pattern), std::move(content)});
}
std::unique_ptr<DecodeStep> metaspace_decoder(std::string replacement, bool drops_first) {
  return std::make_unique<MetaspaceDecoder>(MetaspaceSettings{std::move(replacement), drops_first});
}
std::unique_ptr<DecodeStep> word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(WordPieceSettings{std::move(prefix), cleanup});
}
std::unique_ptr<DecodeStep> suffix_decoder(std::string suffix) {
  return std::make_unique<SuffixDecoder>(std::move(suffix));
}
std::unique_ptr<DecodeStep> space_between_decoder() { return std::make_unique<SpaceBetweenDecoder>(); }
std::unique_ptr<DecodeStep> strip_decoder(std::string content, size_t start, size_t stop, bool of_whole_text) {
  if (content.empty()) start = stop = 0;
  StripSettings settings{std::move(content), start, stop};
  if (of_whole_text) return std::make_unique<TextStripDecoder>(std::move(settings));
  return std::make_unique<TokenStripDecoder>(std::move(settings));
}

}  // namespace weft
