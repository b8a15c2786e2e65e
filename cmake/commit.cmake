# Writes OUTPUT, the source of cli/card/commit.h, with the commit of the work tree SOURCE; an equal
# file is left alone, so that nothing is compiled again.
set(commit "")
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
  OUTPUT_VARIABLE found RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed EQUAL 0)
  set(commit ${found})
  execute_process(COMMAND git diff --quiet HEAD -- src cmake CMakeLists.txt
    WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE differs ERROR_QUIET)
  if(NOT differs EQUAL 0)
    string(APPEND commit "+")
  endif()
endif()
set(text "#include \"cli/card/commit.h\"\n
namespace nibble {\n
std::string_view source_commit() { return \"${commit}\"; }\n
}  // namespace nibble\n")
set(kept "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} kept)
endif()
if(NOT kept STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
