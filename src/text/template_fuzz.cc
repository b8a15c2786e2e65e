// Fuzz entry: any bytes as a chat template, rendered with a fixed conversation under small limits.
// Whatever happens must be a prompt whose pieces obey their rules, or an error.
#include <cstdint>

#include "text/chat_template.h"

namespace {

nibble::TemplateInput make_input() {
  nibble::TemplateInput input;
  const auto messages = nibble::parse_json(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a <b> é </think>"},
          {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
             {"function": {"name": "f", "arguments": {"x": [1, 2.5, null, {"y": true}]}}}]},
          {"role": "tool", "content": [{"type": "text", "text": "42"}]}])",
      "messages");
  input.messages = messages.value();
  input.tools = nibble::Json(nibble::Json::Array{input.messages.as_array()[2]});
  for (const auto& [key, value] : input.messages.as_array()[1].as_object()) {
    input.kwargs.set(key, value);
  }
  input.kwargs.set("s", nibble::Json("Hello, World"));
  input.kwargs.set("n", nibble::Json(7));
  input.kwargs.set("l", nibble::Json(nibble::Json::Array{nibble::Json(3), nibble::Json("x")}));
  input.kwargs.set("d", input.messages.as_array()[1]);
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nibble::TemplateInput kInput = make_input();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const nibble::TemplateLimits limits{.source_bytes_max = size_t{64} << 10,
                                      .output_bytes_max = size_t{64} << 10,
                                      .steps_max = 20'000,
                                      .depth_max = 60};
  const auto compiled = nibble::ChatTemplate::compile(source, "fuzz", {.limits = limits});
  if (!compiled.ok()) {
    CHECK(compiled.error().message.starts_with("fuzz "), compiled.error().message);
    return 0;
  }
  const auto prompt = compiled.value().render(kInput);
  if (!prompt.ok()) return 0;
  const auto& pieces = prompt.value().pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    CHECK(!pieces[i].text.empty(), "piece ", i, " is empty");
    CHECK(i == 0 || pieces[i].origin != pieces[i - 1].origin, "piece ", i, " continues the last");
  }
  CHECK(prompt.value().flat().size() <= limits.output_bytes_max);
  const auto again = compiled.value().render(kInput);
  CHECK(again.ok() && again.value().pieces == pieces, "a second rendering differs");
  return 0;
}
