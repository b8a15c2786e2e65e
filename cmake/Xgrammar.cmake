# The C++ core of xgrammar (Apache-2.0), from the source distribution on PyPI: no Debian package has it.
# Fetched once into build/cache, pinned by its hash; -DNIBBLE_XGRAMMAR_DIR=FOLDER takes an unpacked one.
set(xgrammar_name xgrammar-0.2.8)
set(xgrammar_url
    https://files.pythonhosted.org/packages/03/0f/29f521535729be740779c2c98b630ef6607cf28be9b669895dd2b821ff63/${xgrammar_name}.tar.gz)
set(xgrammar_sha256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
set(NIBBLE_XGRAMMAR_DIR ${PROJECT_SOURCE_DIR}/build/cache/${xgrammar_name} CACHE PATH
    "source of xgrammar; fetched if it is not there")

if(NOT EXISTS ${NIBBLE_XGRAMMAR_DIR}/include/xgrammar/compiler.h)
  include(${PROJECT_SOURCE_DIR}/cmake/Fetch.cmake)
  nibble_fetch(NIBBLE_XGRAMMAR_DIR ${xgrammar_name} ${xgrammar_url} ${xgrammar_sha256}
    ${PROJECT_SOURCE_DIR}/build/cache/${xgrammar_name}.tar.gz ${PROJECT_SOURCE_DIR}/build/cache)
endif()

file(GLOB_RECURSE xgrammar_sources ${NIBBLE_XGRAMMAR_DIR}/cpp/*.cc)
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/.*\\.cc$")
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources}
  ${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_log.cc)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
# Its messages come to us (src/grammar/xgrammar_log.cc). A warning of what compiles grammars is an error
# here (src/grammar/xgrammar_warnings.h).
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_LOG_CUSTOMIZE=1)
set(xgrammar_compiling ${xgrammar_sources})
list(FILTER xgrammar_compiling EXCLUDE REGEX "/(grammar_matcher|tokenizer_info)\\.cc$")
set_source_files_properties(${xgrammar_compiling} PROPERTIES
  COMPILE_OPTIONS "-include;${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_warnings.h"
  INCLUDE_DIRECTORIES ${NIBBLE_XGRAMMAR_DIR}/cpp)
target_compile_options(xgrammar PRIVATE -w -g0 $<$<CONFIG:Release>:-O2>)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${NIBBLE_XGRAMMAR_DIR}/include ${NIBBLE_XGRAMMAR_DIR}/3rdparty/picojson
  ${NIBBLE_XGRAMMAR_DIR}/3rdparty/dlpack/include)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
if(NIBBLE_PCH)  # its own: another standard, no sanitizers
  target_compile_options(xgrammar PRIVATE -fpch-preprocess)
  target_precompile_headers(xgrammar PRIVATE <algorithm> <functional> <memory> <optional>
    <sstream> <string> <unordered_map> <unordered_set> <variant> <vector> <picojson.h>)
endif()
