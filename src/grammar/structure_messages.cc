// A setup or a source as its fields in order.
#include "grammar/structure_messages.h"

#include "grammar/byte_message.h"

namespace nibble {

namespace {

Error broken(std::string_view what) {
  return make_error(ErrorCode::corrupt, {.what = what, .found = "bytes that are none of it"});
}

}  // namespace

std::string bytes_of(const WorkerSetup& setup) {
  ByteWriter out;
  out.texts(setup.vocabulary.tokens);
  out.numbers(setup.vocabulary.stop_ids);
  out.numbers(setup.vocabulary.tags);
  out.number(setup.looks_max);
  out.number(setup.memory_bytes_max);
  out.number(setup.time_max_ms);
  return out.take();
}

Result<WorkerSetup> setup_of(std::string_view bytes) {
  ByteReader in(bytes);
  WorkerSetup setup;
  setup.vocabulary.tokens = in.texts();
  setup.vocabulary.stop_ids = in.numbers<int32_t>();
  setup.vocabulary.tags = in.numbers<int32_t>();
  setup.looks_max = in.number<uint64_t>();
  setup.memory_bytes_max = in.number<uint64_t>();
  setup.time_max_ms = in.number<uint64_t>();
  if (!in.at_end()) return broken("the setup of a structure worker");
  return setup;
}

std::string bytes_of(const GrammarSource& source) {
  ByteWriter out;
  out.number(source.kind);
  out.text(source.text);
  out.texts(source.choices);
  out.number(uint64_t{source.tools.size()});
  for (const CallableTool& tool : source.tools) {
    out.text(tool.name);
    out.text(tool.parameters.dump());
  }
  out.number(source.parallel_calls);
  out.number(source.tool_begin);
  out.number(source.tool_end);
  return out.take();
}

Result<GrammarSource> source_of(std::string_view bytes) {
  ByteReader in(bytes);
  GrammarSource source;
  source.kind = in.number<GrammarSource::Kind>();
  source.text = in.text();
  source.choices = in.texts();
  source.tools.resize(in.size_of_list(2 * sizeof(uint64_t)));
  for (CallableTool& tool : source.tools) {
    tool.name = in.text();
    tool.parameters = TRY(parse_json(in.text(), "the parameters of a function"));
  }
  source.parallel_calls = in.number<uint8_t>() != 0;
  source.tool_begin = in.number<int32_t>();
  source.tool_end = in.number<int32_t>();
  if (!in.at_end() || source.kind > GrammarSource::Kind::free_calls)
    return broken("a source of a structure");
  return source;
}

}  // namespace nibble
