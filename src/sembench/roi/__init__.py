"""Return on investment: lengths of prompts, a reuse rate and measured costs in, expected saving and break-even out."""
