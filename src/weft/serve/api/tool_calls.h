// Tool calls, parsed out of an answer while it comes, as its family writes them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/api/tool_arguments.h"
#include "weft/serve/api/tool_families.h"

namespace weft::api {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
  std::string id = {};    // as the model wrote it, since it wants to read it so; empty: it wrote none
};

using ToolSchemas = std::map<std::string, std::string>;  // of the parameters of the tools, by their names

// What comes out does not depend on how the text is parted, but for when it comes: text at once, a call when it is
// complete. No text is read twice but what was taken for a call and is none.
class ToolCallParser {
 public:
  // tools: what arguments between tags are; null: nothing is known of them.
  explicit ToolCallParser(ToolFormat format, std::shared_ptr<const ToolSchemas> tools = nullptr);

  struct Output {
    std::string content;    // text for people
    std::string reasoning;  // of families whose answers are made of parts
    std::vector<ToolCall> calls;
  };
  Output push(std::string_view text);
  Output finish();  // what looked like a call and is none becomes content

  bool is_thinking() const { return is_thought_ && state_ == State::text; }

 private:
  enum class State : uint8_t { text, gap, header, json, python, marked, key, value };
  enum class Step : uint8_t { on, more, broken };
  // What is looked for, of the family's row.
  struct Pieces {
    std::vector<std::string> marks;
    std::string opening, middle, key_close, value_open, json_open, value_close, part_end;
    bool strips_lines = false;  // a value begins and ends with the end of a line that is not its own
  };
  static Pieces pieces_of(const ToolFamily& family);

  void run(Output& output, bool is_last);
  Step step(Output& output, bool is_last);
  Step read_text(Output& output, bool is_last);
  Step read_gap(Output& output, bool is_last);
  Step read_header();
  Step read_json(Output& output);
  Step read_python(Output& output);
  Step read_marked(Output& output);
  Step read_key(Output& output, bool is_last);
  Step read_value();
  bool begins_whole_answer(bool is_last);
  void take_whole_answer(Output& output);
  void tell_text(Output& output, size_t size);
  void begin_calls(size_t mark_end);
  void take_call(Output& output, ToolCall call);
  void give_up(Output& output, bool is_last);
  bool is_cut_close(std::string_view text) const;
  Step look_for(std::string_view piece, bool is_last) const;  // at at_
  void skip_spaces();

  const ToolFamily& family_;
  const Pieces pieces_;
  const std::shared_ptr<const ToolSchemas> tools_;
  State state_ = State::text;
  std::string held_;      // what is not told yet
  size_t at_ = 0;         // how far it was read
  size_t begin_ = 0;      // where the header, the JSON or the value began
  size_t mark_end_ = 0;   // behind the mark before these calls
  size_t resume_ = 0;     // behind the last call, and what closes it
  size_t num_calls_ = 0;  // behind this mark
  int depth_ = 0;         // of the JSON or Python
  bool is_in_string_ = false, is_escaped_ = false;
  char quote_ = '\0';  // that ends the string
  CallHeader header_;
  TaggedArguments arguments_;
  bool has_content_ = false, has_calls_ = false;
  bool is_silent_ = false, is_thought_ = false;  // until the next mark
};

}  // namespace weft::api
