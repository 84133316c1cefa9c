"""Return on investment: prompt lengths, a reuse rate and measured costs in, expected saving and break-even out."""
