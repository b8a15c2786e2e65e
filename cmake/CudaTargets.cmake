# nibble_cuda_targets(OUT ARCHITECTURES): the targets of the CUDA code, such as 90a-real;80-virtual. ARCHITECTURES
# is `all` (those of a release), `native` (that of the card nvidia-smi shows) or such a list.

function(nibble_native_cuda_target out)
  find_program(NIBBLE_NVIDIA_SMI nvidia-smi NO_CACHE)
  if(NIBBLE_NVIDIA_SMI)
    execute_process(COMMAND ${NIBBLE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET)
  endif()
  if(NOT "${capabilities}" MATCHES "^([0-9]+)\\.([0-9])")  # the first card is the one that is used
    message(FATAL_ERROR "NIBBLE_CUDA_ARCHITECTURES=native: nvidia-smi shows no card. Name targets "
                        "such as 90a-real, or all.")
  endif()
  set(capability ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
  if(capability LESS 80)
    message(FATAL_ERROR "NIBBLE_CUDA_ARCHITECTURES=native: the CUDA backend needs a card of compute "
                        "capability 8.0 or higher, found ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}. Build "
                        "without it (cmake --preset release).")
  endif()
  set(target ${capability}-real)
  foreach(known 90a-90 100f-10. 120f-12.)  # what the kernels of these cards are built as elsewhere
    string(REGEX MATCH "^([0-9]+[af])-(.*)$" unused ${known})
    set(name ${CMAKE_MATCH_1})
    if(capability MATCHES "^${CMAKE_MATCH_2}$")
      set(target ${name}-real)
    endif()
  endforeach()
  set(${out} ${target} PARENT_SCOPE)
endfunction()

function(nibble_cuda_targets out architectures)
  if("${architectures}" STREQUAL "all")
    set(architectures 80-real 86-real 89-real 90a-real 100f-real 120f-real 80-virtual)
  elseif("${architectures}" STREQUAL "native")
    nibble_native_cuda_target(architectures)
  endif()
  if(NOT architectures)
    message(FATAL_ERROR "NIBBLE_CUDA_ARCHITECTURES is empty: name targets such as 90a-real, all or native")
  endif()
  foreach(target ${architectures})
    if(NOT target MATCHES "^[0-9][0-9][0-9]?[af]?-(real|virtual)$")
      message(FATAL_ERROR "NIBBLE_CUDA_ARCHITECTURES: expected all, native or targets such as 90a-real "
                          "and 80-virtual, found ${target}")
    endif()
  endforeach()
  set(${out} ${architectures} PARENT_SCOPE)
endfunction()
