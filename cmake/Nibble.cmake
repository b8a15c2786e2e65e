# nibble_module(NAME [TEST_SECONDS N] [TESTS_ELSEWHERE REGEX] SOURCES... DEPENDS...): a folder of src/
# as a static library, its *_test.cc as one test program, and each *_fuzz.cc as one fuzz program,
# those of its subfolders too. They are found by name, so none can be forgotten. TEST_SECONDS: about
# how long its tests take with sanitizers; the longest begin first, and what takes more than 40 is
# run in parts side by side. TESTS_ELSEWHERE: tests whose path matches belong to another program.

add_library(nibble_flags INTERFACE)
target_compile_options(nibble_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers;-ffp-contract=off>")
target_include_directories(nibble_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(nibble_flags INTERFACE Threads::Threads)
if(NIBBLE_PLAIN_TESTS)
  target_compile_options(nibble_flags INTERFACE
                         "$<$<BOOL:$<TARGET_PROPERTY:NIBBLE_IS_TEST>>:-O0>")
endif()
if(NIBBLE_SANITIZE)
  # Checks of undefined behaviour are two fifths of the time to compile a test, optimisation as much
  # of the rest; both are for the code under test.
  # Null pointers end a program anyway, with a report; to check each access for them, for alignment
  # and for the dynamic type is a fifth of the time to compile, so only fuzz programs do.
  if(NOT NIBBLE_FUZZ)
    set(unchecked "-fno-sanitize=null,alignment,vptr")
  endif()
  target_compile_options(nibble_flags INTERFACE -fsanitize=address
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:NIBBLE_IS_TEST>>>:-fsanitize=undefined;${unchecked}>"
    "$<$<BOOL:$<TARGET_PROPERTY:NIBBLE_IS_TEST>>:-O0>"
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(nibble_flags INTERFACE -fsanitize=address,undefined)
endif()
if(NIBBLE_TSAN)
  target_compile_options(nibble_flags INTERFACE -fsanitize=thread)
  target_link_options(nibble_flags INTERFACE -fsanitize=thread)
endif()

# The headers that nearly every file reads, read once: a cold build of the tests is half parsing.
# The release build does without, so a forgotten #include is found there.
if(NIBBLE_PCH)
  file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
  add_library(nibble_pch OBJECT ${CMAKE_BINARY_DIR}/empty.cc)
  target_link_libraries(nibble_pch PRIVATE nibble_flags)
  set(standard_headers <algorithm> <array> <atomic> <chrono> <cstdint> <filesystem> <functional> <map>
      <memory> <mutex> <optional> <span> <string> <string_view> <thread> <utility> <variant> <vector>)
  target_precompile_headers(nibble_pch PRIVATE ${standard_headers})
  if(NIBBLE_TESTS)
    find_package(GTest REQUIRED)
    add_library(nibble_test_pch OBJECT ${CMAKE_BINARY_DIR}/empty.cc)
    target_link_libraries(nibble_test_pch PRIVATE nibble_flags GTest::gtest)
    target_precompile_headers(nibble_test_pch PRIVATE ${standard_headers} <gtest/gtest.h>)
    set_target_properties(nibble_test_pch PROPERTIES NIBBLE_IS_TEST ON)
  endif()
endif()
function(nibble_precompiled target pch)
  if(NOT NIBBLE_PCH)
    return()
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess)  # for ccache
  target_precompile_headers(${target} REUSE_FROM ${pch})
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})  # other flags, other headers
    get_source_file_property(flags ${source} COMPILE_OPTIONS)
    if(flags)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

if(NIBBLE_TESTS)
  configure_file(${PROJECT_SOURCE_DIR}/src/testing/source_dir.h.in
                 ${CMAKE_BINARY_DIR}/generated/testing/source_dir.h @ONLY)
endif()

# Called from the module's own folder; SOURCES are relative to it.
function(nibble_module name)
  cmake_parse_arguments(ARG "" "TEST_SECONDS;TESTS_ELSEWHERE" "SOURCES;DEPENDS;TEST_DEPENDS" ${ARGN})
  set(target nibble_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_link_libraries(${target} PUBLIC nibble_flags ${ARG_DEPENDS})
  nibble_precompiled(${target} nibble_pch)
  if(NIBBLE_TESTS)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
    if(ARG_TESTS_ELSEWHERE)
      list(FILTER tests EXCLUDE REGEX "${ARG_TESTS_ELSEWHERE}")
    endif()
    if(tests)
      find_package(GTest REQUIRED)
      add_executable(${target}_test ${tests})
      set_target_properties(${target}_test PROPERTIES NIBBLE_IS_TEST ON)
      target_link_libraries(${target}_test PRIVATE ${target} ${ARG_TEST_DEPENDS} GTest::gtest_main)
      nibble_precompiled(${target}_test nibble_test_pch)
      target_include_directories(${target}_test PRIVATE ${CMAKE_BINARY_DIR}/generated)
      set(seconds 1)
      if(ARG_TEST_SECONDS)
        set(seconds ${ARG_TEST_SECONDS})
      endif()
      math(EXPR parts "(${seconds} + 39) / 40 | 1")  # odd: every other test may be of a card
      math(EXPR last "${parts} - 1")
      math(EXPR cost "${seconds} / ${parts}")
      foreach(part RANGE ${last})
        set(test ${name})
        if(parts GREATER 1)
          set(test ${name}_part${part})
        endif()
        add_test(NAME ${test} COMMAND ${target}_test)
        set_tests_properties(${test} PROPERTIES COST ${cost}
          ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${part}")
      endforeach()
    endif()
  endif()
  if(NIBBLE_TESTS)
    file(GLOB_RECURSE fuzzers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_fuzz.cc)
    foreach(source ${fuzzers})
      nibble_fuzzer(${source} ${target} ${ARG_TEST_DEPENDS})
    endforeach()
  endif()
endfunction()

# OUTPUT, a source file with the files FOLDER/*.EXTENSION as `std::span<const TYPE> FUNCTION()`; TYPE,
# of HEADER, has the members name and text.
function(nibble_embed_texts folder extension type function header output)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.${extension})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DEXTENSION=${extension} -DTYPE=${type}
            -DFUNCTION=${function} -DHEADER=${header} -DOUTPUT=${output}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_texts.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_texts.cmake
  )
endfunction()

# A fuzz entry (LLVMFuzzerTestOneInput). With NIBBLE_FUZZ (clang) it is a libFuzzer program; else a
# seeded mutation driver runs it over its corpus, tests/corpus/NAME/, as an ordinary test.
function(nibble_fuzzer source)
  get_filename_component(fuzzer ${source} NAME_WE)
  set(corpus ${PROJECT_SOURCE_DIR}/tests/corpus/${fuzzer})
  if(NIBBLE_FUZZ)
    add_executable(${fuzzer} ${source})
    target_compile_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
    target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${fuzzer} ${source} ${PROJECT_SOURCE_DIR}/src/testing/fuzz_driver.cc)
    add_test(NAME ${fuzzer} COMMAND ${fuzzer} ${corpus} 20000 8)
  endif()
  target_link_libraries(${fuzzer} PRIVATE ${ARGN})
  target_include_directories(${fuzzer} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
