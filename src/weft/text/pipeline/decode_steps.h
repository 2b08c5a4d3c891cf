// Decode steps: how the spellings of tokens become text again, one token after the other.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace weft {

// A step of one text being decoded: it may remember what came before.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual std::unique_ptr<DecodeStep> fresh() const = 0;    // the same step for another text
  virtual void push(std::string& token) = 0;                // rewrites a token
  virtual void finish(std::string& rest) { rest.clear(); }  // gives what it held back
};
using DecodeSteps = std::vector<std::unique_ptr<DecodeStep>>;

// By the names that tokenizer.json gives them. Tokens may come to hold bytes that are not UTF-8.
std::unique_ptr<DecodeStep> byte_level_decoder();     // characters of ByteAlphabet to bytes
std::unique_ptr<DecodeStep> byte_fallback_decoder();  // "<0x0A>" to a byte
std::unique_ptr<DecodeStep> replace_decoder(std::string pattern, std::string content);
std::unique_ptr<DecodeStep> metaspace_decoder(std::string replacement, bool drops_first);
std::unique_ptr<DecodeStep> word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<DecodeStep> suffix_decoder(
    std::string suffix);                              // BPEDecoder: `suffix` is a space, but not at the end
std::unique_ptr<DecodeStep> space_between_decoder();  // what Hugging Face does when there is no decoder
// Takes up to `start` and `stop` of the character `content` from both ends: of every token, or of the whole text.
std::unique_ptr<DecodeStep> strip_decoder(std::string content, size_t start, size_t stop, bool of_whole_text);

}  // namespace weft
