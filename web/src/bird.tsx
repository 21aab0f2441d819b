import type { JSX } from "preact";

/** The sign of the house: a bird on its perch. */
export function Bird(): JSX.Element {
  return (
    <svg class="bird" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="9" />
      <path class="perch" d="M5 22h22" />
      <path class="body" d="M9 21c-.6-5.600 3-9.800 8-9.800.6-2 2.300-3.200 4.200-2.900 1.400.2 2.400 1.100 2.700 2.300l2.300.9-2.300 1.100c-.1 5-3.600 8.400-8.400 8.400z" />
    </svg>
  );
}
