// The same two calls as each family of models writes them, and templates that show how.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "weft/serve/api/served_model.h"

namespace weft::api {

struct ToolSample {
  ToolFormat format;
  std::string text;       // the calls, of families that write one at a time the first
  std::string jinja;      // a template that writes calls so
  bool of_token = false;  // the template shows nothing; the family is known by its token
};

inline constexpr const char* kWeatherSchema =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 0}},
        "required": ["city", "days"], "additionalProperties": false})";
inline constexpr const char* kTimeSchema =
    R"({"type": "object", "properties": {"zone": {"type": "object", "properties": {"name": {"type": "string"},
        "at": {"type": "array", "items": {"type": "number"}}}, "required": ["name", "at"]},
        "note": {"type": "string"}}, "required": ["zone", "note"], "additionalProperties": false})";
inline constexpr const char* kWeather = R"({"city": "Ulm", "days": 2})";
inline constexpr const char* kZone = R"({"name": "C\"E\"T}", "at": [1, -2.5e3]})";
inline constexpr const char* kNote = "a \"b\"\n</x> \\ \xC3\xBC \xE6\x97\xA5";

inline std::string time_arguments() {
  return std::string("{\"zone\": ") + kZone + ", \"note\": " + nlohmann::json(kNote).dump() + "}";
}
inline std::vector<std::pair<std::string, nlohmann::json>> sample_calls(ToolFormat format) {
  std::vector<std::pair<std::string, nlohmann::json>> calls{{"weather", nlohmann::json::parse(kWeather)}};
  if (tool_family(format).is_parallel) calls.emplace_back("time", nlohmann::json::parse(time_arguments()));
  return calls;
}
inline OutputForm sample_form(ToolFormat format) {
  OutputForm form{.kind = OutputForm::Kind::tool_calls, .text = {}, .choices = {"weather", "time"}};
  form.schemas = {kWeatherSchema, kTimeSchema};
  form.tool_format = format;
  form.is_parallel = true;
  return form;
}

inline std::string jinja_of(const std::string& before, const std::string& call, const std::string& after) {
  return "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}" + before +
         "{% for c in m.tool_calls %}" + call + "{% endfor %}" + after + "{% endif %}{% endfor %}";
}

inline std::string python_calls(const std::string& between) {
  return std::string("weather(city=\"Ulm\", days=2)") + between + "time(zone=" + kZone +
         ", note=" + nlohmann::json(kNote).dump() + ")";
}

inline std::vector<ToolSample> tool_samples() {
  const std::string w = kWeather, t = time_arguments(), zone = kZone, note = kNote;
  const std::string name = "{{ c.function.name }}", json = "{{ c.function.arguments | tojson }}";
  const auto tags = [](const std::string& text) {
    return "{% for k, v in c.function.arguments | items %}" + text + "{% endfor %}";
  };
  const std::string of_json = "{\"name\": \"" + name + "\", \"arguments\": " + json + "}";
  const std::string list =
      "[{\"name\": \"weather\", \"arguments\": " + w + "}, {\"name\": \"time\", \"arguments\": " + t + "}]";
  const std::string in_python =
      name + "({% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %})";
  const std::string value = "{{ v if v is string else v | tojson }}";
  return {
      {ToolFormat::harmony, "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" + w,
       jinja_of("", "<|start|>assistant to=functions." + name + "<|channel|>commentary json<|message|>" + json,
                "<|call|>")},
      {ToolFormat::deepseek_v32,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">Ulm</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
       "<｜DSML｜invoke name=\"time\">\n<｜DSML｜parameter name=\"zone\" string=\"false\">" +
           zone + "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"note\" string=\"true\">" + note +
           "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "{% for m in messages %}<｜{{ m.role }}｜>{{ m.content }}{% endfor %}", true},
      {ToolFormat::deepseek_v3,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + w +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n" + t +
           "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       jinja_of("<｜tool▁calls▁begin｜>",
                "{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\n```json\n' + "
                "c.function.arguments + '\n```<｜tool▁call▁end｜>' }}",
                "<｜tool▁calls▁end｜>")},
      {ToolFormat::deepseek_v31,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + w +
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>" + t +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       jinja_of("<｜tool▁calls▁begin｜>",
                "{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments "
                "}}<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>")},
      {ToolFormat::kimi_k2,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" + w +
           "<|tool_call_end|><|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>" + t +
           "<|tool_call_end|><|tool_calls_section_end|>",
       "{% for m in messages %}<|im_{{ m.role }}|>{{ m.content }}{% endfor %}", true},
      {ToolFormat::minimax_m2,
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Ulm</parameter>\n<parameter "
       "name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"time\">\n<parameter name=\"zone\">" +
           zone + "</parameter>\n<parameter name=\"note\">" + note + "</parameter>\n</invoke>\n</minimax:tool_call>",
       jinja_of("\n<minimax:tool_call>\n",
                "<invoke name=\"" + name + "\">\n" + tags("<parameter name=\"{{ k }}\">" + value + "</parameter>\n") +
                    "</invoke>\n",
                "</minimax:tool_call>")},
      {ToolFormat::seed_oss,
       "<seed:tool_call>\n<function=weather>\n<parameter=city>Ulm</parameter>\n<parameter=days>2</parameter>\n"
       "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=time>\n<parameter=zone>" +
           zone + "</parameter>\n<parameter=note>" + note + "</parameter>\n</function>\n</seed:tool_call>",
       jinja_of("",
                "\n<seed:tool_call>\n<function=" + name + ">\n" +
                    tags("<parameter={{ k }}>" + value + "</parameter>\n") + "</function>\n</seed:tool_call>",
                "")},
      {ToolFormat::glm,
       "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>time\n<arg_key>zone</arg_key>\n<arg_value>" +
           zone + "</arg_value>\n<arg_key>note</arg_key>\n<arg_value>" + note + "</arg_value>\n</tool_call>",
       jinja_of("",
                "\n<tool_call>" + name + tags("<arg_key>{{ k }}</arg_key>\n<arg_value>" + value + "</arg_value>\n") +
                    "</tool_call>",
                "")},
      {ToolFormat::qwen3_coder,
       "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
       "</function>\n</tool_call>\n<tool_call>\n<function=time>\n<parameter=zone>\n" +
           zone + "\n</parameter>\n<parameter=note>\n" + note + "\n</parameter>\n</function>\n</tool_call>",
       jinja_of("",
                "\n<tool_call>\n<function=" + name + ">\n" +
                    tags("<parameter={{ k }}>\n" + value + "\n</parameter>\n") + "</function>\n</tool_call>",
                "")},
      {ToolFormat::functionary_v31, "<function=weather>" + w + "</function><function=time>" + t + "</function>",
       jinja_of("", "<function=" + name + ">{{ c.function.arguments }}</function>", "<|eom_id|>")},
      {ToolFormat::functionary_v32, ">>>weather\n" + w + ">>>time\n" + t,
       jinja_of("", "{{ '>>>' + c.function.name + '\n' + c.function.arguments }}", "<|eot_id|>")},
      {ToolFormat::command_r,
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": " + w +
           "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"time\", \"parameters\": " + t + "}\n]<|END_ACTION|>",
       jinja_of("<|START_ACTION|>[\n",
                "    {\"tool_call_id\": \"0\", \"tool_name\": \"" + name + "\", \"parameters\": " + json + "}",
                "\n]<|END_ACTION|>")},
      {ToolFormat::phi4,
       "<|tool_call|>{\"name\": \"weather\", \"arguments\": " + w +
           "}<|/tool_call|><|tool_call|>{\"name\": \"time\", "
           "\"arguments\": " +
           t + "}<|/tool_call|>",
       jinja_of("", "<|tool_call|>{{ c.function | tojson }}<|/tool_call|>", "")},
      {ToolFormat::granite, "<|tool_call|>" + list,
       "{% if tools %}Respond only with <|tool_call|> and a JSON list of the tools used.{% endif %}{% for m in "
       "messages %}{{ m.content }}{% endfor %}"},
      {ToolFormat::functools, "functools" + list,
       "{% if tools %}Calls are functools[{\"name\": NAME, \"arguments\": JSON}, ...]{% endif %}{% for m in "
       "messages %}{{ m.content }}{% endfor %}"},
      {ToolFormat::minimax_m1,
       "<tool_calls>\n{\"name\": \"weather\", \"arguments\": " + w + "}\n{\"name\": \"time\", \"arguments\": " + t +
           "}\n</tool_calls>",
       jinja_of("<tool_calls>\n", of_json + "\n", "</tool_calls>")},
      {ToolFormat::hunyuan, "<tool_calls>" + list + "</tool_calls>",
       jinja_of("<tool_calls>[", of_json, "]</tool_calls>")},
      {ToolFormat::nemotron, "<TOOLCALL>" + list + "</TOOLCALL>", jinja_of("<TOOLCALL>[", of_json, "]</TOOLCALL>")},
      {ToolFormat::lfm2, "<|tool_call_start|>[" + python_calls(", ") + "]<|tool_call_end|>",
       jinja_of("<|tool_call_start|>[", in_python, "]<|tool_call_end|>")},
      {ToolFormat::gemma4,
       "<|tool_call>call:weather{city:<|\"|>Ulm<|\"|>,days:2}<tool_call|>"
       "<|tool_call>call:time{zone:{name:<|\"|>C\"E\"T}<|\"|>,at:[1,-2.5e3]},note:<|\"|>" +
           note + "<|\"|>}<tool_call|>",
       jinja_of("", "<|tool_call>call:" + name + "{{ '{' }}" + tags("{{ k }}:<|\"|>{{ v }}<|\"|>") + "}<tool_call|>",
                "")},
      {ToolFormat::gemma, "```tool_code\n" + python_calls("\n") + "\n```",
       jinja_of("```tool_code\n", in_python + "\n", "```")},
      {ToolFormat::pythonic, "[" + python_calls(", ") + "]", jinja_of("[", in_python, "]")},
      {ToolFormat::mistral_args, "[TOOL_CALLS]weather[ARGS]" + w + "[TOOL_CALLS]time[ARGS]" + t,
       jinja_of("", "[TOOL_CALLS]" + name + "[CALL_ID]{{ c.id }}[ARGS]" + json, "")},
      {ToolFormat::mistral, "[TOOL_CALLS]" + list, jinja_of("[TOOL_CALLS] [", of_json, "]")},
      {ToolFormat::hermes,
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": " + w +
           "}\n</tool_call>\n<tool_call>\n{\"name\": "
           "\"time\", \"arguments\": " +
           t + "}\n</tool_call>",
       jinja_of("", "<tool_call>\n" + of_json + "\n</tool_call>", "")},
      {ToolFormat::llama,
       "{\"name\": \"weather\", \"parameters\": " + w + "}; {\"name\": \"time\", \"parameters\": " + t + "}",
       jinja_of("", "{\"name\": \"" + name + "\", \"parameters\": " + json + "}", "")},
  };
}

inline std::string sample_name(const testing::TestParamInfo<ToolSample>& test) {
  return tool_family(test.param.format).name;
}

}  // namespace weft::api
